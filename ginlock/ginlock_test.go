package ginlock_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"go.uber.org/goleak"

	"github.com/latchkit/latchkit/ginlock"
	"github.com/latchkit/latchkit/internal/adaptertest"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	goleak.VerifyTestMain(m)
}

func TestRequests(t *testing.T) {
	adaptertest.RunHTTP(t, onEngine(func(*gin.Engine) {}))
}

// The engine's ways to find parameters: a resource has one key in all of them.
func TestEngines(t *testing.T) {
	for name, set := range engines {
		t.Run(name, func(t *testing.T) { adaptertest.RunPaths(t, onEngine(set)) })
	}
}

var engines = map[string]func(*gin.Engine){
	"default":            func(*gin.Engine) {},
	"UseRawPath":         func(e *gin.Engine) { e.UseRawPath = true },
	"UseEscapedPath":     func(e *gin.Engine) { e.UseEscapedPath = true },
	"raw, undecoded":     func(e *gin.Engine) { e.UseRawPath, e.UnescapePathValues = true, false },
	"escaped, undecoded": func(e *gin.Engine) { e.UseEscapedPath, e.UnescapePathValues = true, false },
	"RemoveExtraSlash":   func(e *gin.Engine) { e.RemoveExtraSlash, e.UseRawPath = true, true },
}

func FuzzPath(f *testing.F) { adaptertest.FuzzPath(f, onEngine(engines["UseRawPath"])) }

func FuzzPathUndecoded(f *testing.F) {
	adaptertest.FuzzPath(f, onEngine(engines["escaped, undecoded"]))
}

func onEngine(set func(*gin.Engine)) adaptertest.HTTP {
	return adaptertest.HTTP{
		Mount: func(_ *testing.T, routes ...adaptertest.Route) http.Handler {
			engine := gin.New()
			set(engine)
			return mount(engine, routes)
		},
		Levels:                []adaptertest.Level{adaptertest.AtRoute, adaptertest.AtGroup, adaptertest.AtRouter},
		ServerErrorsElsewhere: true,
	}
}

func TestRequestsOnRedis(t *testing.T) {
	adaptertest.RunHTTPOnRedis(t, onEngine(func(*gin.Engine) {}))
}

var keys = adaptertest.Keys[ginlock.KeyFunc]{
	Param: ginlock.Param, Query: ginlock.Query, Header: ginlock.Header, Cookie: ginlock.Cookie,
	Form: ginlock.Form, JSON: ginlock.JSON, BodyHash: ginlock.BodyHash, Named: ginlock.Named, Join: ginlock.Join,
	Custom: func(key func(*http.Request) (string, error)) ginlock.KeyFunc {
		return func(c *gin.Context) (string, error) { return key(c.Request) }
	},
}

func mount(engine *gin.Engine, routes []adaptertest.Route) http.Handler {
	engine.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) {
		c.AbortWithStatus(http.StatusInternalServerError)
	}))
	for _, r := range routes {
		lock := ginlock.By(keys.Make(r.Key), options.Make(r.Options)...)
		handler := func(c *gin.Context) {
			if err := r.Handler(c.Writer, c.Request); err != nil {
				_ = c.Error(err)
			}
		}
		switch r.Level {
		case adaptertest.AtRouter:
			engine.Use(lock)
			engine.Handle(r.Method, r.Path, handler)
		case adaptertest.AtGroup:
			engine.Group("/g", lock).Handle(r.Method, r.Path[len("/g"):], handler)
		default:
			engine.Handle(r.Method, r.Path, lock, handler)
		}
	}
	return engine
}

var options = adaptertest.OptionSet[ginlock.Option]{
	Locker: ginlock.WithLocker, Acquire: ginlock.WithAcquire, Cooldown: ginlock.WithCooldown, RetryAfter: ginlock.WithRetryAfter,
	PerRoute: ginlock.WithPerRoute, MaxBody: ginlock.WithMaxBody, AllowDegraded: ginlock.WithAllowDegraded,
	Skipper: func(skip func(*http.Request) bool) ginlock.Option {
		return ginlock.WithSkipper(func(c *gin.Context) bool { return skip(c.Request) })
	},
	ErrorHandler: func(handle func(http.ResponseWriter, *http.Request, error)) ginlock.Option {
		return ginlock.WithErrorHandler(func(c *gin.Context, err error) { handle(c.Writer, c.Request, err) })
	},
	Success: func(ok func(int) bool) ginlock.Option {
		return ginlock.WithSuccess(func(c *gin.Context) bool { return ok(c.Writer.Status()) })
	},
}

// An adapter costs its user one import.
func TestLinks(t *testing.T) {
	adaptertest.WantNoLinks(t, adaptertest.Echo, adaptertest.Chi, adaptertest.GRPC,
		adaptertest.OpenTelemetry, adaptertest.Breaker, adaptertest.Miniredis, "testing")
}
