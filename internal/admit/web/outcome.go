package web

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// Outcome watches how a handler answers. It changes nothing.
type Outcome struct {
	http.ResponseWriter
	status   int // the final one; 0 while there is none
	hijacked bool
}

// Watch returns w with its outcome watched. The writer to hand on keeps the powers of w.
func Watch(w http.ResponseWriter) (*Outcome, http.ResponseWriter) {
	o := &Outcome{ResponseWriter: w}
	return o, o.withPowers()
}

// Status is the status of the answer: 200 when the handler has written nothing, for that is what the server then says.
// It is 0 for a connection that was hijacked: there is no answer that anybody here knows.
func (o *Outcome) Status() int {
	switch {
	case o.hijacked:
		return 0
	case o.status == 0:
		return http.StatusOK
	default:
		return o.status
	}
}

// Hijacked tells whether the handler took over the connection.
func (o *Outcome) Hijacked() bool { return o.hijacked }

// Answered tells whether an answer was begun.
func (o *Outcome) Answered() bool { return o.hijacked || o.status != 0 }

// WriteHeader notes the status, unless it is an informational one that another follows.
func (o *Outcome) WriteHeader(status int) {
	if o.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		o.status = status
	}
	o.ResponseWriter.WriteHeader(status)
}

func (o *Outcome) Write(b []byte) (int, error) {
	o.assume200()
	return o.ResponseWriter.Write(b)
}

// WriteString saves a copy where the writer within does.
func (o *Outcome) WriteString(s string) (int, error) {
	o.assume200()
	return io.WriteString(o.ResponseWriter, s)
}

// Unwrap is for http.ResponseController, which finds deadlines and full duplex through it.
func (o *Outcome) Unwrap() http.ResponseWriter {
	_, hijacks := o.ResponseWriter.(http.Hijacker)
	_, unwraps := o.ResponseWriter.(interface{ Unwrap() http.ResponseWriter })
	if unwraps && !hijacks {
		return below{o.ResponseWriter, o}
	}
	return o.ResponseWriter
}

// below stands for a writer that cannot be hijacked, while one that it wraps perhaps can: a hijack through Unwrap must
// not go unnoticed.
type below struct {
	http.ResponseWriter
	o *Outcome
}

func (b below) Unwrap() http.ResponseWriter { return b.ResponseWriter }

func (b below) Hijack() (net.Conn, *bufio.ReadWriter, error) { return b.o.hijack() }

func (o *Outcome) assume200() {
	if o.status == 0 {
		o.status = http.StatusOK
	}
}

func (o *Outcome) hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(o.ResponseWriter).Hijack()
	if err == nil {
		o.hijacked = true
	}
	return conn, rw, err
}
