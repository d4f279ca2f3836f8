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
	for name, set := range map[string]func(*gin.Engine){
		"default":            func(*gin.Engine) {},
		"UseRawPath":         func(e *gin.Engine) { e.UseRawPath = true },
		"UseEscapedPath":     func(e *gin.Engine) { e.UseEscapedPath = true },
		"raw, undecoded":     func(e *gin.Engine) { e.UseRawPath, e.UnescapePathValues = true, false },
		"escaped, undecoded": func(e *gin.Engine) { e.UseEscapedPath, e.UnescapePathValues = true, false },
		"RemoveExtraSlash":   func(e *gin.Engine) { e.RemoveExtraSlash, e.UseRawPath = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			adaptertest.RunHTTP(t, adaptertest.HTTP{
				Mount: func(_ *testing.T, routes ...adaptertest.Route) http.Handler {
					engine := gin.New()
					set(engine)
					return mount(engine, routes)
				},
				Levels:                []adaptertest.Level{adaptertest.AtRoute, adaptertest.AtGroup, adaptertest.AtRouter},
				ServerErrorsElsewhere: true,
			})
		})
	}
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
		lock := ginlock.By(keys.Make(r.Key), optionsOf(r.Options)...)
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

func optionsOf(o adaptertest.HTTPOptions) []ginlock.Option {
	opts := []ginlock.Option{
		ginlock.WithAcquire(o.Acquire...), ginlock.WithCooldown(o.Cooldown), ginlock.WithRetryAfter(o.RetryAfter),
		ginlock.WithAllowDegraded(!o.RefuseDegraded),
	}
	if o.Locker != nil {
		opts = append(opts, ginlock.WithLocker(o.Locker))
	}
	if o.PerRoute {
		opts = append(opts, ginlock.WithPerRoute())
	}
	if o.MaxBody > 0 {
		opts = append(opts, ginlock.WithMaxBody(o.MaxBody))
	}
	if o.Skip != nil {
		opts = append(opts, ginlock.WithSkipper(func(c *gin.Context) bool { return o.Skip(c.Request) }))
	}
	if o.OnError != nil {
		opts = append(opts, ginlock.WithErrorHandler(func(c *gin.Context, err error) { o.OnError(c.Writer, c.Request, err) }))
	}
	if o.Success != nil {
		opts = append(opts, ginlock.WithSuccess(func(c *gin.Context) bool { return o.Success(c.Writer.Status()) }))
	}
	return opts
}
