package httplock

import (
	"net/http"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/admit/web"
)

// Option sets how the middleware behaves. Options panic over what no deployment could mean.
type Option func(*config)

type config struct {
	web.Settings
	key       KeyFunc
	skip      func(*http.Request) bool
	onError   func(http.ResponseWriter, *http.Request, error)
	isSuccess func(*http.Request, int) bool
}

func (c *config) success(r *http.Request, status int) bool {
	if c.isSuccess != nil {
		return c.isSuccess(r, status)
	}
	return web.Succeeded(status)
}

// WithLocker sets what to lock with. Without it core.Default() is asked at each request; if there is none either, the
// request is answered 500.
func WithLocker(l core.Locker) Option {
	web.RequireFunc("WithLocker", l)
	return func(c *config) { c.Locker = l }
}

// WithAcquire adds options to each Acquire, such as core.WithWait. An option out of range shows in the first request: 500.
func WithAcquire(opts ...core.Option) Option {
	return func(c *config) { c.Acquire = append(c.Acquire, opts...) }
}

// WithCooldown keeps the key taken for d after a success, to turn repetitions away as completed; after anything else
// it is freed at once. Success is a final status of 2xx, or what WithSuccess says. A connection that was hijacked never
// cools down, nor does the key of a lease that was lost. 0 means none.
//
// A cooldown keeps the whole resource out, from every route with the same key. Add WithPerRoute to turn away the
// repetition of one operation only.
func WithCooldown(d time.Duration) Option {
	web.RequireDuration("WithCooldown", d)
	return func(c *config) { c.Cooldown = d }
}

// WithSuccess has fn say whether a request has succeeded, by the final status of its answer (200 when the handler wrote
// nothing). It is asked only where there is a cooldown, and not after a panic or a hijack.
func WithSuccess(fn func(r *http.Request, status int) bool) Option {
	web.RequireFunc("WithSuccess", fn)
	return func(c *config) { c.isSuccess = fn }
}

// WithRetryAfter sets what clients are told to wait when the key is busy or the backend away: 1 s unless set, rounded
// up to seconds, and for a busy key never beyond what is left of the holder's lease. 0 means the default. What is left
// of a cooldown, or of a quarantine of RedLock, is always told exactly.
func WithRetryAfter(d time.Duration) Option {
	web.RequireDuration("WithRetryAfter", d)
	return func(c *config) { c.RetryAfter = d }
}

// WithPerRoute locks the operation instead of the resource: the key becomes "METHOD pattern key".
func WithPerRoute() Option { return func(c *config) { c.PerRoute = true } }

// WithMaxBody sets how many bytes of a body are read for its key: 1 MiB unless set. A longer body is answered 413. Key
// functions that need no body have no cap.
func WithMaxBody(n int64) Option {
	web.RequireMaxBody(n)
	return func(c *config) { c.MaxBody = n }
}

// WithSkipper lets requests for which skip is true pass without a lock.
func WithSkipper(skip func(*http.Request) bool) Option {
	web.RequireFunc("WithSkipper", skip)
	return func(c *config) { c.skip = skip }
}

// WithAllowDegraded says whether a lock that could only be had without its store, by the fallback, is good enough: true
// unless set. With false such a request is answered 503.
func WithAllowDegraded(allow bool) Option {
	return func(c *config) { c.RefuseDegraded = !allow }
}

// WithErrorHandler has fn answer the requests that are turned away; err is a *Refusal. One for which fn writes nothing
// gets the usual answer.
func WithErrorHandler(fn func(w http.ResponseWriter, r *http.Request, err error)) Option {
	web.RequireFunc("WithErrorHandler", fn)
	return func(c *config) { c.onError = fn }
}
