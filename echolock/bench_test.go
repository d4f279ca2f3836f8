package echolock_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/echolock"
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
	b.Run("no-op locker", func(b *testing.B) { benchmark(b, locked(echolock.WithLocker(nothing))) })
	b.Run("no-op locker, cooldown", func(b *testing.B) {
		benchmark(b, locked(echolock.WithLocker(nothing), echolock.WithCooldown(time.Nanosecond)))
	})
	b.Run("local", func(b *testing.B) { benchmark(b, locked(echolock.WithLocker(local))) })
}

func benchmark(b *testing.B, handler http.Handler) {
	r, w := httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil), httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		handler.ServeHTTP(w, r)
	}
}

func created(c echo.Context) error { return c.NoContent(http.StatusCreated) }

func bare() http.Handler { return instanceOf() }

func locked(opts ...echolock.Option) http.Handler {
	return instanceOf(echolock.ByParam("orderID", opts...))
}

func instanceOf(middlewares ...echo.MiddlewareFunc) http.Handler {
	e := echo.New()
	e.POST("/orders/:orderID/pay", created, middlewares...)
	return e
}
