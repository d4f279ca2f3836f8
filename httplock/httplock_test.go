package httplock_test

import (
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/latchkit/latchkit/httplock"
	"github.com/latchkit/latchkit/internal/adaptertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var adapter = adaptertest.HTTP{
	Mount:  mountServeMux,
	Levels: []adaptertest.Level{adaptertest.AtRoute},
}

func TestRequests(t *testing.T) { adaptertest.RunHTTP(t, adapter) }

func TestRequestsOnRedis(t *testing.T) { adaptertest.RunHTTPOnRedis(t, adapter) }

func TestPaths(t *testing.T) { adaptertest.RunPaths(t, adapter) }

func FuzzPath(f *testing.F) { adaptertest.FuzzPath(f, adapter) }

var keys = adaptertest.Keys[httplock.KeyFunc]{
	Param: httplock.Param, Query: httplock.Query, Header: httplock.Header, Cookie: httplock.Cookie,
	Form: httplock.Form, JSON: httplock.JSON, BodyHash: httplock.BodyHash, Named: httplock.Named, Join: httplock.Join,
	Custom: func(key func(*http.Request) (string, error)) httplock.KeyFunc { return key },
}

func mountServeMux(_ *testing.T, routes ...adaptertest.Route) http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		pattern := r.Method + " " + braces(r.Path)
		mux.Handle(pattern, httplock.By(keys.Make(r.Key), options.Make(r.Options)...)(handlerOf(r)))
	}
	return recovering(mux)
}

var options = adaptertest.OptionSet[httplock.Option]{
	Locker: httplock.WithLocker, Acquire: httplock.WithAcquire, Cooldown: httplock.WithCooldown, RetryAfter: httplock.WithRetryAfter,
	PerRoute: httplock.WithPerRoute, MaxBody: httplock.WithMaxBody, AllowDegraded: httplock.WithAllowDegraded,
	Skipper: httplock.WithSkipper, ErrorHandler: httplock.WithErrorHandler,
	Success: func(ok func(int) bool) httplock.Option {
		return httplock.WithSuccess(func(_ *http.Request, status int) bool { return ok(status) })
	},
}

func handlerOf(r adaptertest.Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := r.Handler(w, req); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
}

func recovering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// braces turns :name into {name}.
func braces(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if strings.HasPrefix(s, ":") {
			segments[i] = "{" + s[1:] + "}"
		}
	}
	return strings.Join(segments, "/")
}

// An adapter costs its user one import.
func TestLinks(t *testing.T) {
	adaptertest.WantNoLinks(t, adaptertest.Gin, adaptertest.Echo, adaptertest.Protobuf, adaptertest.Chi, adaptertest.GRPC,
		adaptertest.OpenTelemetry, adaptertest.Breaker, adaptertest.Miniredis, "testing")
}
