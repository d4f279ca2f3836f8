package web

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// Handlers find out by type assertion what a writer can do. A watched writer can flush and be hijacked exactly where
// the one within can, since handlers and websocket libraries choose another way without. What is left they can have in
// any case: a push may be refused by its contract, ReadFrom falls back to copying, and a channel may never tell.

func (o *Outcome) withPowers() http.ResponseWriter {
	_, flushes := o.ResponseWriter.(http.Flusher)
	_, hijacks := o.ResponseWriter.(http.Hijacker)
	switch {
	case flushes && hijacks:
		return struct {
			*Outcome
			flusher
			hijacker
		}{o, flusher{o}, hijacker{o}}
	case flushes:
		return struct {
			*Outcome
			flusher
		}{o, flusher{o}}
	case hijacks:
		return struct {
			*Outcome
			hijacker
		}{o, hijacker{o}}
	default:
		return o
	}
}

type flusher struct{ o *Outcome }

func (p flusher) Flush() {
	p.o.assume200()
	p.o.ResponseWriter.(http.Flusher).Flush()
}

// FlushError is what http.ResponseController looks for first.
func (p flusher) FlushError() error {
	p.o.assume200()
	return http.NewResponseController(p.o.ResponseWriter).Flush()
}

type hijacker struct{ o *Outcome }

func (p hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) { return p.o.hijack() }

// ReadFrom lets the server send a file by the kernel's means, where the writer within does.
func (o *Outcome) ReadFrom(source io.Reader) (int64, error) {
	o.assume200()
	if w, ok := o.ResponseWriter.(io.ReaderFrom); ok {
		return w.ReadFrom(source)
	}
	return io.Copy(o.ResponseWriter, source)
}

// Push says http.ErrNotSupported where the writer within cannot.
func (o *Outcome) Push(target string, opts *http.PushOptions) error {
	if p, ok := o.ResponseWriter.(http.Pusher); ok {
		return p.Push(target, opts)
	}
	return http.ErrNotSupported
}

// CloseNotify is http.CloseNotifier's: deprecated, and in use all the same, by gin's Stream for one.
func (o *Outcome) CloseNotify() <-chan bool {
	if n, ok := o.ResponseWriter.(interface{ CloseNotify() <-chan bool }); ok {
		return n.CloseNotify()
	}
	return make(chan bool)
}
