package ginlock_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/ginlock"
)

// What the middleware adds to a bare handler: the difference to "bare".
func BenchmarkOverhead(b *testing.B) {
	nothing := core.LockerFunc(func(context.Context, string, ...core.Option) (*core.Lease, error) { return nil, nil })
	local, err := core.New(core.Local())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = local.Close(context.Background()) })
	b.Run("bare", func(b *testing.B) { benchmark(b, bare()) })
	b.Run("no-op locker", func(b *testing.B) { benchmark(b, locked(ginlock.WithLocker(nothing))) })
	b.Run("no-op locker, cooldown", func(b *testing.B) {
		benchmark(b, locked(ginlock.WithLocker(nothing), ginlock.WithCooldown(time.Nanosecond)))
	})
	b.Run("local", func(b *testing.B) { benchmark(b, locked(ginlock.WithLocker(local))) })
}

func benchmark(b *testing.B, handler http.Handler) {
	r, w := httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil), httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		handler.ServeHTTP(w, r)
	}
}

func created(c *gin.Context) { c.Status(http.StatusCreated) }

func bare() http.Handler { return engineOf(created) }

func locked(opts ...ginlock.Option) http.Handler {
	return engineOf(ginlock.ByParam("orderID", opts...), created)
}

func engineOf(handlers ...gin.HandlerFunc) http.Handler {
	engine := gin.New()
	engine.POST("/orders/:orderID/pay", handlers...)
	return engine
}
