package web

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// Handlers find out by type assertion what a writer can do, so a watched one must have exactly the powers of the one
// within. Each power is a type of its own, and compose puts together those that are there.

type flusher struct{ o *Outcome }

func (p flusher) Flush() {
	p.o.assume200()
	p.o.ResponseWriter.(http.Flusher).Flush()
}

// FlushError is what http.ResponseController looks for first; without it, it would unwrap past Flush.
func (p flusher) FlushError() error {
	p.o.assume200()
	return http.NewResponseController(p.o.ResponseWriter).Flush()
}

type hijacker struct{ o *Outcome }

func (p hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) { return p.o.hijack() }

type reader struct{ o *Outcome }

func (p reader) ReadFrom(source io.Reader) (int64, error) {
	p.o.assume200()
	return p.o.ResponseWriter.(io.ReaderFrom).ReadFrom(source)
}

type pusher struct{ o *Outcome }

func (p pusher) Push(target string, opts *http.PushOptions) error {
	return p.o.ResponseWriter.(http.Pusher).Push(target, opts)
}

type notifier struct{ o *Outcome }

func (p notifier) CloseNotify() <-chan bool { return p.o.ResponseWriter.(closeNotifier).CloseNotify() }

// closeNotifier is http.CloseNotifier: deprecated, and in use all the same, by gin's Stream for one.
type closeNotifier interface{ CloseNotify() <-chan bool }

const (
	flushes = 1 << iota
	hijacks
	readsFrom
	pushes
	notifies
)

func powersOf(w http.ResponseWriter) (powers int) {
	if _, ok := w.(http.Flusher); ok {
		powers |= flushes
	}
	if _, ok := w.(http.Hijacker); ok {
		powers |= hijacks
	}
	if _, ok := w.(io.ReaderFrom); ok {
		powers |= readsFrom
	}
	if _, ok := w.(http.Pusher); ok {
		powers |= pushes
	}
	if _, ok := w.(closeNotifier); ok {
		powers |= notifies
	}
	return powers
}

// compose returns o with the powers.
//
//nolint:gocyclo,cyclop,funlen // One case per set of powers: a table that the compiler checks.
func (o *Outcome) compose(powers int) http.ResponseWriter {
	f, h, r, p, n := flusher{o}, hijacker{o}, reader{o}, pusher{o}, notifier{o}
	switch powers {
	case flushes:
		return struct {
			*Outcome
			flusher
		}{o, f}
	case hijacks:
		return struct {
			*Outcome
			hijacker
		}{o, h}
	case flushes | hijacks:
		return struct {
			*Outcome
			flusher
			hijacker
		}{o, f, h}
	case readsFrom:
		return struct {
			*Outcome
			reader
		}{o, r}
	case flushes | readsFrom:
		return struct {
			*Outcome
			flusher
			reader
		}{o, f, r}
	case hijacks | readsFrom:
		return struct {
			*Outcome
			hijacker
			reader
		}{o, h, r}
	case flushes | hijacks | readsFrom:
		return struct {
			*Outcome
			flusher
			hijacker
			reader
		}{o, f, h, r}
	case pushes:
		return struct {
			*Outcome
			pusher
		}{o, p}
	case flushes | pushes:
		return struct {
			*Outcome
			flusher
			pusher
		}{o, f, p}
	case hijacks | pushes:
		return struct {
			*Outcome
			hijacker
			pusher
		}{o, h, p}
	case flushes | hijacks | pushes:
		return struct {
			*Outcome
			flusher
			hijacker
			pusher
		}{o, f, h, p}
	case readsFrom | pushes:
		return struct {
			*Outcome
			reader
			pusher
		}{o, r, p}
	case flushes | readsFrom | pushes:
		return struct {
			*Outcome
			flusher
			reader
			pusher
		}{o, f, r, p}
	case hijacks | readsFrom | pushes:
		return struct {
			*Outcome
			hijacker
			reader
			pusher
		}{o, h, r, p}
	case flushes | hijacks | readsFrom | pushes:
		return struct {
			*Outcome
			flusher
			hijacker
			reader
			pusher
		}{o, f, h, r, p}
	case notifies:
		return struct {
			*Outcome
			notifier
		}{o, n}
	case flushes | notifies:
		return struct {
			*Outcome
			flusher
			notifier
		}{o, f, n}
	case hijacks | notifies:
		return struct {
			*Outcome
			hijacker
			notifier
		}{o, h, n}
	case flushes | hijacks | notifies:
		return struct {
			*Outcome
			flusher
			hijacker
			notifier
		}{o, f, h, n}
	case readsFrom | notifies:
		return struct {
			*Outcome
			reader
			notifier
		}{o, r, n}
	case flushes | readsFrom | notifies:
		return struct {
			*Outcome
			flusher
			reader
			notifier
		}{o, f, r, n}
	case hijacks | readsFrom | notifies:
		return struct {
			*Outcome
			hijacker
			reader
			notifier
		}{o, h, r, n}
	case flushes | hijacks | readsFrom | notifies:
		return struct {
			*Outcome
			flusher
			hijacker
			reader
			notifier
		}{o, f, h, r, n}
	case pushes | notifies:
		return struct {
			*Outcome
			pusher
			notifier
		}{o, p, n}
	case flushes | pushes | notifies:
		return struct {
			*Outcome
			flusher
			pusher
			notifier
		}{o, f, p, n}
	case hijacks | pushes | notifies:
		return struct {
			*Outcome
			hijacker
			pusher
			notifier
		}{o, h, p, n}
	case flushes | hijacks | pushes | notifies:
		return struct {
			*Outcome
			flusher
			hijacker
			pusher
			notifier
		}{o, f, h, p, n}
	case readsFrom | pushes | notifies:
		return struct {
			*Outcome
			reader
			pusher
			notifier
		}{o, r, p, n}
	case flushes | readsFrom | pushes | notifies:
		return struct {
			*Outcome
			flusher
			reader
			pusher
			notifier
		}{o, f, r, p, n}
	case hijacks | readsFrom | pushes | notifies:
		return struct {
			*Outcome
			hijacker
			reader
			pusher
			notifier
		}{o, h, r, p, n}
	case flushes | hijacks | readsFrom | pushes | notifies:
		return struct {
			*Outcome
			flusher
			hijacker
			reader
			pusher
			notifier
		}{o, f, h, r, p, n}
	default:
		return o
	}
}
