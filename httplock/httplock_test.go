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

func TestRequests(t *testing.T) {
	adaptertest.RunHTTP(t, adaptertest.HTTP{
		Mount:  mountServeMux,
		Levels: []adaptertest.Level{adaptertest.AtRoute},
	})
}

var keys = adaptertest.Keys[httplock.KeyFunc]{
	Param: httplock.Param, Query: httplock.Query, Header: httplock.Header, Cookie: httplock.Cookie,
	Form: httplock.Form, JSON: httplock.JSON, BodyHash: httplock.BodyHash, Named: httplock.Named, Join: httplock.Join,
	Custom: func(key func(*http.Request) (string, error)) httplock.KeyFunc { return key },
}

func mountServeMux(_ *testing.T, routes ...adaptertest.Route) http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		pattern := r.Method + " " + braces(r.Path)
		mux.Handle(pattern, httplock.By(keys.Make(r.Key), optionsOf(r.Options)...)(handlerOf(r)))
	}
	return recovering(mux)
}

func optionsOf(o adaptertest.HTTPOptions) []httplock.Option {
	opts := []httplock.Option{
		httplock.WithAcquire(o.Acquire...), httplock.WithCooldown(o.Cooldown), httplock.WithRetryAfter(o.RetryAfter),
		httplock.WithAllowDegraded(!o.RefuseDegraded),
	}
	if o.Locker != nil {
		opts = append(opts, httplock.WithLocker(o.Locker))
	}
	if o.PerRoute {
		opts = append(opts, httplock.WithPerRoute())
	}
	if o.MaxBody > 0 {
		opts = append(opts, httplock.WithMaxBody(o.MaxBody))
	}
	if o.Skip != nil {
		opts = append(opts, httplock.WithSkipper(o.Skip))
	}
	if o.OnError != nil {
		opts = append(opts, httplock.WithErrorHandler(o.OnError))
	}
	if o.Success != nil {
		opts = append(opts, httplock.WithSuccess(func(_ *http.Request, status int) bool { return o.Success(status) }))
	}
	return opts
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
