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
	lease, err := local.Acquire(b.Context(), "orderID:43") // as ByParam("orderID") names it
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = lease.Release(context.Background()) })
	for _, c := range []struct {
		name    string
		handler http.Handler
		order   string
	}{
		{"bare", bare, "42"},
		{"no-op locker", locked(Options{Locker: nothing}), "42"},
		{"no-op locker, cooldown", locked(Options{Locker: nothing, Cooldown: time.Second}), "42"},
		{"local", locked(Options{Locker: local}), "42"},
		{"refused", locked(Options{Locker: local}), "43"},
	} {
		b.Run(c.name, func(b *testing.B) {
			r, w := httptest.NewRequest(http.MethodPost, "/orders/"+c.order+"/pay", nil), &nobody{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				c.handler.ServeHTTP(w, r)
			}
			if want := http.StatusConflict; (w.status == want) != (c.name == "refused") {
				b.Error(w.status)
			}
		})
	}
}

// nobody is the writer of an answer that nobody reads.
type nobody struct {
	header http.Header
	status int
}

func (n *nobody) Header() http.Header         { return n.header }
func (n *nobody) Write(p []byte) (int, error) { return len(p), nil }
func (n *nobody) WriteHeader(status int)      { n.status = status }
