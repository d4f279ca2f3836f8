package echolock

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/httplock"
	"github.com/latchkit/latchkit/internal/admit"
	"github.com/latchkit/latchkit/internal/admit/web"
)

// By returns a middleware that runs the handler under the lock of the request's key. Requests with other keys run side
// by side; one whose key is held is answered 409, or waits when WithAcquire gives core.WithWait.
//
// It panics when key is nil or an option means nothing.
func By(key KeyFunc, opts ...Option) echo.MiddlewareFunc {
	web.RequireFunc("echolock.By", key)
	m := &middleware{Settings: web.Defaults(), key: key}
	for _, o := range opts {
		o(m)
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { return m.handle(c, next) }
	}
}

// ByParam is By(Param(name), opts...).
func ByParam(name string, opts ...Option) echo.MiddlewareFunc {
	return By(Param(name), opts...)
}

// Lease returns the lease under which the handler runs: the innermost, where several middlewares lock. There is none
// outside of them.
func Lease(c echo.Context) (*core.Lease, bool) {
	return core.FromContext(c.Request().Context())
}

type middleware struct {
	web.Settings
	key       KeyFunc
	skip      func(echo.Context) bool
	onError   func(echo.Context, error) error
	isSuccess func(echo.Context, error) bool
	routes    routes
}

func (m *middleware) handle(c echo.Context, next echo.HandlerFunc) error {
	if m.skip != nil && m.skip(c) || !m.routes.match(c) {
		return next(c)
	}
	lease, verdict := m.enter(c)
	if verdict != nil {
		return m.refuse(c, verdict)
	}
	return m.run(c, next, lease)
}

func (m *middleware) enter(c echo.Context) (*core.Lease, *admit.Verdict) {
	r := c.Request()
	key, err := m.keyOf(c, r)
	if err != nil {
		return nil, m.RefuseKey(r.Context(), err)
	}
	return m.Enter(r.Context(), r, key)
}

func (m *middleware) keyOf(c echo.Context, r *http.Request) (string, error) {
	web.CapBody(r, m.MaxBody)
	key, err := m.key(c)
	web.UncapBody(r)
	if err != nil || key == "" || !m.PerRoute {
		return key, err
	}
	if c.Path() == "" {
		return "", admit.NotDeclared("a route")
	}
	return web.RouteKey(r.Method, c.Path(), key), nil
}

// run runs the handler. The deferred Leave frees the key when it panics too, and lets the panic pass.
func (m *middleware) run(c echo.Context, next echo.HandlerFunc, lease *core.Lease) error {
	outer, response := c.Request(), c.Response()
	ctx := outer.Context()
	success := false
	if lease != nil {
		c.SetRequest(outer.WithContext(lease.Context()))
	}
	defer func() {
		web.Settle(outer, c.Request())
		c.SetRequest(outer)
		m.Leave(ctx, lease, success)
	}()

	var err error
	if m.Cooldown == 0 {
		err = next(c)
	} else {
		success, err = m.watch(c, next)
	}
	if v := m.Lost(ctx, lease, err); v != nil && !response.Committed {
		return m.refuse(c, v)
	}
	return err
}

// watch runs the handler and tells whether it has succeeded. The writer is watched for a connection that is taken over:
// echo's response then still says 200.
func (m *middleware) watch(c echo.Context, next echo.HandlerFunc) (success bool, err error) {
	response, writer := c.Response(), c.Response().Writer
	outcome, watched := web.Watch(writer)
	response.Writer = watched
	defer func() {
		if response.Writer == watched { // whoever wrapped it in turn, and keeps it so, has a reason
			response.Writer = writer
		}
	}()
	err = next(c)
	switch {
	case outcome.Hijacked():
		return false, err
	case m.isSuccess != nil:
		return m.isSuccess(c, err), err
	default:
		return err == nil && web.Succeeded(response.Status), err
	}
}

// refuse answers the request. A handler of the user's that neither answers nor returns an error must not end as an empty
// 200, nor one that hands the refusal back as a 500.
func (m *middleware) refuse(c echo.Context, v *admit.Verdict) error {
	refusal := httplock.RefusalOf(c.Request().Context(), v)
	if m.onError == nil {
		return httpError(c, refusal)
	}
	err := m.onError(c, refusal)
	if err == error(refusal) || err == nil && !c.Response().Committed {
		return httpError(c, refusal)
	}
	return err
}
