package adaptertest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
)

// BenchmarkOverhead measures what an adapter adds to a bare handler: the difference to "bare". Bare is a service without
// the adapter, whose route is POST /orders/:orderID/pay and whose handler sets a status; locked is the same with it.
func BenchmarkOverhead(b *testing.B, bare http.Handler, locked func(o Options) http.Handler) {
	nothing := core.LockerFunc(func(context.Context, string, ...core.Option) (*core.Lease, error) { return nil, nil })
	local, err := core.New(core.Local())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = local.Close(context.Background()) })
	for _, c := range []struct {
		name    string
		handler http.Handler
	}{
		{"bare", bare},
		{"no-op locker", locked(Options{Locker: nothing})},
		{"no-op locker, cooldown", locked(Options{Locker: nothing, Cooldown: time.Second})},
		{"local", locked(Options{Locker: local})},
	} {
		b.Run(c.name, func(b *testing.B) {
			r, w := httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil), httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				c.handler.ServeHTTP(w, r)
			}
		})
	}
}
