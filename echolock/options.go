package echolock

import (
	"time"

	"github.com/labstack/echo/v4"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/admit/web"
)

// Option sets how the middleware behaves. Options panic over what no deployment could mean.
type Option func(*middleware)

// WithLocker sets what to lock with. Without it core.Default() is asked at each request; if there is none either, the
// request is answered 500.
func WithLocker(l core.Locker) Option {
	web.RequireFunc("WithLocker", l)
	return func(m *middleware) { m.Locker = l }
}

// WithAcquire adds options to each Acquire, such as core.WithWait. An option out of range shows in the first request: 500.
func WithAcquire(opts ...core.Option) Option {
	return func(m *middleware) { m.Acquire = append(m.Acquire, opts...) }
}

// WithCooldown keeps the key taken for d after a success, to turn repetitions away as completed; after anything else
// it is freed at once. Success is a final status of 2xx from a handler that returned no error, or what
// WithSuccess says. A connection that was hijacked never cools down, nor does the key of a lease that was
// lost. 0 means none.
//
// A cooldown keeps the whole resource out, from every route with the same key. Add WithPerRoute to turn away the
// repetition of one operation only.
func WithCooldown(d time.Duration) Option {
	web.RequireDuration("WithCooldown", d)
	return func(m *middleware) { m.Cooldown = d }
}

// WithSuccess has fn say, by what the handler returned, whether the request has succeeded. It is asked only where there
// is a cooldown, and not after a panic or a hijack.
func WithSuccess(fn func(c echo.Context, err error) bool) Option {
	web.RequireFunc("WithSuccess", fn)
	return func(m *middleware) { m.isSuccess = fn }
}

// WithRetryAfter sets what clients are told to wait when the key is busy or the backend away: 1 s unless set, rounded
// up to seconds, and for a busy key never beyond what is left of the holder's lease. 0 means the default. What is left
// of a cooldown, or of a quarantine of RedLock, is always told exactly.
func WithRetryAfter(d time.Duration) Option {
	web.RequireDuration("WithRetryAfter", d)
	return func(m *middleware) { m.RetryAfter = d }
}

// WithPerRoute locks the operation instead of the resource: the key becomes "METHOD pattern key".
func WithPerRoute() Option { return func(m *middleware) { m.PerRoute = true } }

// WithMaxBody sets how many bytes of a body are read for its key: 1 MiB unless set. A longer body is answered 413. Key
// functions that need no body have no cap.
func WithMaxBody(n int64) Option {
	web.RequireMaxBody(n)
	return func(m *middleware) { m.MaxBody = n }
}

// WithSkipper lets requests for which skip is true pass without a lock.
func WithSkipper(skip func(echo.Context) bool) Option {
	web.RequireFunc("WithSkipper", skip)
	return func(m *middleware) { m.skip = skip }
}

// WithAllowDegraded says whether a lock that could only be had without its store, by the fallback, is good enough: true
// unless set. With false such a request is answered 503.
func WithAllowDegraded(allow bool) Option {
	return func(m *middleware) { m.RefuseDegraded = !allow }
}

// WithErrorHandler has fn answer the requests that are turned away, or return what is to be returned for them; err is a
// *httplock.Refusal. Returned as it is, or with neither an answer nor an error, it gets the usual answer.
func WithErrorHandler(fn func(c echo.Context, err error) error) Option {
	web.RequireFunc("WithErrorHandler", fn)
	return func(m *middleware) { m.onError = fn }
}
