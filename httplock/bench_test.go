package httplock_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/httplock"
	"github.com/latchkit/latchkit/internal/adaptertest"
)

func BenchmarkOverhead(b *testing.B) {
	created := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	service := func(handler http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("POST /orders/{orderID}/pay", handler)
		return mux
	}
	adaptertest.BenchmarkOverhead(b, service(created), func(o adaptertest.Options) http.Handler {
		return service(httplock.ByParam("orderID", options.Make(adaptertest.HTTPOptions{Options: o})...)(created))
	})
}

// BenchmarkBody measures what a key from a body of 1 KB costs more than one from the path, where the handler reads the
// body in any case.
func BenchmarkBody(b *testing.B) {
	nothing := httplock.WithLocker(core.LockerFunc(func(context.Context, string, ...core.Option) (*core.Lease, error) { return nil, nil }))
	body := []byte(`{"note":"` + strings.Repeat("x", 500) + `","order":{"id":4711,"paid":false},"lines":[` +
		strings.Repeat(`{"sku":"AB-1234","count":3},`, 16) + `{}]}`)
	reads := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	for name, key := range map[string]httplock.KeyFunc{
		"param": httplock.Param("orderID"), "json": httplock.JSON("order.id"),
	} {
		mux := http.NewServeMux()
		mux.Handle("POST /orders/{orderID}/pay", httplock.By(key, nothing)(reads))
		b.Run(name, func(b *testing.B) {
			r, w, sent := httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil), httptest.NewRecorder(), bytes.NewReader(body)
			r.ContentLength = int64(len(body))
			b.ReportAllocs()
			for b.Loop() {
				sent.Reset(body)
				r.Body = io.NopCloser(sent)
				mux.ServeHTTP(w, r)
			}
			if w.Code != http.StatusOK {
				b.Fatal(w.Code)
			}
		})
	}
}
