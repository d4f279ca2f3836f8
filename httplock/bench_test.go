package httplock_test

import (
	"net/http"
	"testing"

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
