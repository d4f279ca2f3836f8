package ginlock

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/httplock"
	"github.com/latchkit/latchkit/internal/admit"
	"github.com/latchkit/latchkit/internal/admit/web"
)

// By returns a middleware that runs the handlers after it under the lock of the request's key. Requests with other keys
// run side by side; one whose key is held is answered 409, or waits when WithAcquire gives core.WithWait.
//
// It panics when key is nil or an option means nothing.
func By(key KeyFunc, opts ...Option) gin.HandlerFunc {
	web.RequireFunc("ginlock.By", key)
	m := &middleware{Settings: web.Defaults(), key: key}
	for _, o := range opts {
		o(m)
	}
	return m.handle
}

// ByParam is By(Param(name), opts...).
func ByParam(name string, opts ...Option) gin.HandlerFunc {
	return By(Param(name), opts...)
}

// Lease returns the lease under which the handler runs: the innermost, where several middlewares lock. There is none
// outside of them.
func Lease(c *gin.Context) (*core.Lease, bool) {
	return core.FromContext(c.Request.Context())
}

type middleware struct {
	web.Settings
	key       KeyFunc
	skip      func(*gin.Context) bool
	onError   func(*gin.Context, error)
	isSuccess func(*gin.Context) bool
}

func (m *middleware) handle(c *gin.Context) {
	if c.FullPath() == "" || m.skip != nil && m.skip(c) {
		return
	}
	lease, verdict := m.enter(c)
	if verdict != nil {
		m.refuse(c, verdict)
		return
	}
	m.run(c, lease)
}

func (m *middleware) enter(c *gin.Context) (*core.Lease, *admit.Verdict) {
	ctx := c.Request.Context()
	web.CapBody(c.Request, m.MaxBody)
	key, err := m.key(c)
	web.UncapBody(c.Request)
	if err != nil {
		return nil, m.RefuseKey(ctx, err)
	}
	if m.PerRoute && key != "" {
		key = web.RouteKey(c.Request.Method, c.FullPath(), key)
	}
	return m.Enter(ctx, c.Request, key)
}

// run runs the handlers. The deferred Leave frees the key when one panics too, and lets the panic pass.
func (m *middleware) run(c *gin.Context, lease *core.Lease) {
	outer, before := c.Request, len(c.Errors)
	ctx := outer.Context()
	success := false
	if lease != nil {
		c.Request = outer.WithContext(lease.Context())
	}
	watched := m.watch(c)
	defer func() {
		watched.putBack(c)
		web.Settle(outer, c.Request)
		c.Request = outer
		m.Leave(ctx, lease, success)
	}()
	c.Next()
	success = m.Cooldown > 0 && !watched.hijacked && m.success(c, before)
	if !c.Writer.Written() {
		m.answerLost(ctx, c, lease, before)
	}
}

// success: a final 2xx. An error that was added while nothing was written is left to an error middleware, which has not
// answered yet.
func (m *middleware) success(c *gin.Context, before int) bool {
	if m.isSuccess != nil {
		return m.isSuccess(c)
	}
	pending := len(c.Errors) > before && !c.Writer.Written()
	return web.Succeeded(c.Writer.Status()) && !pending
}

// answerLost answers a handler that gave up because its lease had ended under it.
func (m *middleware) answerLost(ctx context.Context, c *gin.Context, lease *core.Lease, before int) {
	if lease == nil {
		return
	}
	for _, e := range c.Errors[min(before, len(c.Errors)):] {
		if v := m.Lost(ctx, lease, e.Err); v != nil {
			m.refuse(c, v)
			return
		}
	}
}

func (m *middleware) refuse(c *gin.Context, v *admit.Verdict) {
	refusal := httplock.RefusalOf(c.Request.Context(), v)
	c.Abort()
	switch {
	case m.onError != nil:
		c.Status(refusal.Status) // a handler that writes nothing must not end as an empty 200
		m.onError(c, refusal)
	case refusal.Status >= http.StatusInternalServerError:
		refusal.Advise(c.Writer.Header())
		c.Status(refusal.Status)
		_ = c.Error(refusal)
	default:
		refusal.Write(c.Writer)
	}
}
