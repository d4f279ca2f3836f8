package httplock

import (
	"net/http"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/admit"
	"github.com/latchkit/latchkit/internal/admit/web"
)

// By returns a middleware that runs the handler under the lock of the request's key. Requests with other keys run side
// by side; one whose key is held is answered 409, or waits when WithAcquire gives core.WithWait.
//
// It panics when key is nil or an option means nothing.
func By(key KeyFunc, opts ...Option) func(http.Handler) http.Handler {
	web.RequireFunc("httplock.By", key)
	c := config{Settings: web.Defaults(), key: key}
	for _, o := range opts {
		o(&c)
	}
	return func(next http.Handler) http.Handler {
		web.RequireFunc("httplock: the handler", next)
		return &middleware{config: c, next: next}
	}
}

// ByParam is By(Param(name), opts...).
func ByParam(name string, opts ...Option) func(http.Handler) http.Handler {
	return By(Param(name), opts...)
}

type middleware struct {
	config
	next http.Handler
}

func (m *middleware) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if m.skip != nil && m.skip(r) {
		m.next.ServeHTTP(w, r)
		return
	}
	lease, verdict := m.enter(r)
	if verdict != nil {
		m.refuse(w, r, verdict)
		return
	}
	m.serve(w, r, lease)
}

func (m *middleware) enter(r *http.Request) (*core.Lease, *admit.Verdict) {
	key, err := m.keyOf(r)
	if err != nil {
		return nil, m.RefuseKey(r.Context(), err)
	}
	return m.Enter(r.Context(), r, key)
}

func (m *middleware) keyOf(r *http.Request) (string, error) {
	web.CapBody(r, m.MaxBody)
	key, err := m.key(r)
	web.UncapBody(r)
	if err != nil || key == "" || !m.PerRoute {
		return key, err
	}
	if r.Pattern == "" {
		return "", admit.NotDeclared("a route")
	}
	_, pattern := splitPattern(r.Pattern)
	return web.RouteKey(r.Method, pattern, key), nil
}

// serve runs the handler. The deferred Leave frees the key when the handler panics too, and lets the panic pass.
func (m *middleware) serve(w http.ResponseWriter, r *http.Request, lease *core.Lease) {
	inner, success := r, false
	if lease != nil {
		inner = r.WithContext(lease.Context())
	}
	defer func() {
		web.Settle(r, inner)
		m.Leave(r.Context(), lease, success)
	}()
	if m.Cooldown == 0 {
		m.next.ServeHTTP(w, inner)
		return
	}
	outcome, watched := web.Watch(w)
	m.next.ServeHTTP(watched, inner)
	success = !outcome.Hijacked() && m.success(r, outcome.Status())
}

// refuse answers the request. A handler of the user's that writes nothing must not end as an empty 200.
func (m *middleware) refuse(w http.ResponseWriter, r *http.Request, v *admit.Verdict) {
	refusal := RefusalOf(r.Context(), v)
	if m.onError == nil {
		refusal.Write(w)
		return
	}
	outcome, watched := web.Watch(w)
	m.onError(watched, r, refusal)
	if !outcome.Answered() {
		refusal.Write(w)
	}
}
