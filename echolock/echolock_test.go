package echolock_test

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"go.uber.org/goleak"

	"github.com/latchkit/latchkit/echolock"
	"github.com/latchkit/latchkit/internal/adaptertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRequests(t *testing.T) {
	adaptertest.RunHTTP(t, adaptertest.HTTP{
		Mount:  mount,
		Levels: []adaptertest.Level{adaptertest.AtRoute, adaptertest.AtGroup, adaptertest.AtRouter},
	})
}

var keys = adaptertest.Keys[echolock.KeyFunc]{
	Param: echolock.Param, Query: echolock.Query, Header: echolock.Header, Cookie: echolock.Cookie,
	Form: echolock.Form, JSON: echolock.JSON, BodyHash: echolock.BodyHash, Named: echolock.Named, Join: echolock.Join,
	Custom: func(key func(*http.Request) (string, error)) echolock.KeyFunc {
		return func(c echo.Context) (string, error) { return key(c.Request()) }
	},
}

func mount(_ *testing.T, routes ...adaptertest.Route) http.Handler {
	e := echo.New()
	e.Use(recovering)
	for _, r := range routes {
		lock := echolock.By(keys.Make(r.Key), optionsOf(r.Options)...)
		handler := func(c echo.Context) error { return r.Handler(c.Response(), c.Request()) }
		switch r.Level {
		case adaptertest.AtRouter:
			e.Use(lock)
			e.Add(r.Method, r.Path, handler)
		case adaptertest.AtGroup:
			e.Group("/g", lock).Add(r.Method, r.Path[len("/g"):], handler)
		default:
			e.Add(r.Method, r.Path, handler, lock)
		}
	}
	return e
}

// recovering stands for echo's own recovery.
func recovering(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			if recover() != nil {
				err = echo.ErrInternalServerError
			}
		}()
		return next(c)
	}
}

func optionsOf(o adaptertest.HTTPOptions) []echolock.Option {
	opts := []echolock.Option{
		echolock.WithAcquire(o.Acquire...), echolock.WithCooldown(o.Cooldown), echolock.WithRetryAfter(o.RetryAfter),
		echolock.WithAllowDegraded(!o.RefuseDegraded),
	}
	if o.Locker != nil {
		opts = append(opts, echolock.WithLocker(o.Locker))
	}
	if o.PerRoute {
		opts = append(opts, echolock.WithPerRoute())
	}
	if o.MaxBody > 0 {
		opts = append(opts, echolock.WithMaxBody(o.MaxBody))
	}
	if o.Skip != nil {
		opts = append(opts, echolock.WithSkipper(func(c echo.Context) bool { return o.Skip(c.Request()) }))
	}
	if o.OnError != nil {
		opts = append(opts, echolock.WithErrorHandler(func(c echo.Context, err error) error {
			o.OnError(c.Response(), c.Request(), err)
			return nil
		}))
	}
	if o.Success != nil {
		opts = append(opts, echolock.WithSuccess(func(c echo.Context, _ error) bool { return o.Success(c.Response().Status) }))
	}
	return opts
}
