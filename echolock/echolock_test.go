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

var adapter = adaptertest.HTTP{
	Mount:  mount,
	Levels: []adaptertest.Level{adaptertest.AtRoute, adaptertest.AtGroup, adaptertest.AtRouter},
}

func TestRequests(t *testing.T) { adaptertest.RunHTTP(t, adapter) }

func TestRequestsOnRedis(t *testing.T) { adaptertest.RunHTTPOnRedis(t, adapter) }

func TestPaths(t *testing.T) { adaptertest.RunPaths(t, adapter) }

func FuzzPath(f *testing.F) { adaptertest.FuzzPath(f, adapter) }

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
		lock := echolock.By(keys.Make(r.Key), options.Make(r.Options)...)
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

var options = adaptertest.OptionSet[echolock.Option]{
	Locker: echolock.WithLocker, Acquire: echolock.WithAcquire, Cooldown: echolock.WithCooldown, RetryAfter: echolock.WithRetryAfter,
	PerRoute: echolock.WithPerRoute, MaxBody: echolock.WithMaxBody, AllowDegraded: echolock.WithAllowDegraded,
	Skipper: func(skip func(*http.Request) bool) echolock.Option {
		return echolock.WithSkipper(func(c echo.Context) bool { return skip(c.Request()) })
	},
	ErrorHandler: func(handle func(http.ResponseWriter, *http.Request, error)) echolock.Option {
		return echolock.WithErrorHandler(func(c echo.Context, err error) error {
			handle(c.Response(), c.Request(), err)
			return nil
		})
	},
	Success: func(ok func(int) bool) echolock.Option {
		return echolock.WithSuccess(func(c echo.Context, _ error) bool { return ok(c.Response().Status) })
	},
}

// An adapter costs its user one import.
func TestLinks(t *testing.T) {
	adaptertest.WantNoLinks(t, adaptertest.Gin, adaptertest.Protobuf, adaptertest.Chi, adaptertest.GRPC,
		adaptertest.OpenTelemetry, adaptertest.Breaker, adaptertest.Miniredis, "testing")
}
