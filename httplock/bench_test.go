package httplock_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/httplock"
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
	b.Run("no-op locker", func(b *testing.B) { benchmark(b, locked(httplock.WithLocker(nothing))) })
	b.Run("no-op locker, cooldown", func(b *testing.B) {
		benchmark(b, locked(httplock.WithLocker(nothing), httplock.WithCooldown(time.Nanosecond)))
	})
	b.Run("local", func(b *testing.B) { benchmark(b, locked(httplock.WithLocker(local))) })
}

func benchmark(b *testing.B, handler http.Handler) {
	r, w := httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil), httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		handler.ServeHTTP(w, r)
	}
}

var created = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })

func bare() http.Handler { return muxOf(created) }

func locked(opts ...httplock.Option) http.Handler {
	return muxOf(httplock.ByParam("orderID", opts...)(created))
}

func muxOf(handler http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{orderID}/pay", handler)
	return mux
}
