package ginlock

import (
	"bufio"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
)

// watch has c.Writer tell whether a handler takes over the connection, where a cooldown needs to know: gin's own writer
// then still says 200.
func (m *middleware) watch(c *gin.Context) *hijackWatch {
	if m.Cooldown == 0 {
		return nil
	}
	w := &hijackWatch{ResponseWriter: c.Writer}
	c.Writer = w
	return w
}

// hijackWatch has all powers of gin's writer, which are those of its interface.
type hijackWatch struct {
	gin.ResponseWriter
	hijacked bool
}

// putBack ends the watch. Whoever has wrapped the writer in turn, and keeps it so, has a reason.
func (w *hijackWatch) putBack(c *gin.Context) {
	if w != nil && c.Writer == gin.ResponseWriter(w) {
		c.Writer = w.ResponseWriter
	}
}

func (w *hijackWatch) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.ResponseWriter.Hijack()
	w.hijacked = w.hijacked || err == nil
	return conn, rw, err
}

// Unwrap is for http.ResponseController.
func (w *hijackWatch) Unwrap() http.ResponseWriter { return w.ResponseWriter }
