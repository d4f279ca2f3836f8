package httplock_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/core/locktest"
	"github.com/latchkit/latchkit/httplock"
	"github.com/latchkit/latchkit/internal/adaptertest"
)

// chi gives parameters through a function of its own.
var chiAdapter = func() adaptertest.HTTP {
	onChi := keys
	onChi.Param = func(name string) httplock.KeyFunc { return httplock.URLParam(name, chi.URLParam) }
	return adaptertest.HTTP{
		Mount: func(_ *testing.T, routes ...adaptertest.Route) http.Handler {
			router := chi.NewRouter()
			router.Use(recovering)
			for _, r := range routes {
				lock := httplock.By(onChi.Make(r.Key), options.Make(r.Options)...)
				router.With(lock).Method(r.Method, braces(r.Path), handlerOf(r))
			}
			return router
		},
		Levels: []adaptertest.Level{adaptertest.AtRoute},
	}
}()

func TestRequestsOnChi(t *testing.T) { adaptertest.RunHTTP(t, chiAdapter) }

func TestPathsOnChi(t *testing.T) { adaptertest.RunPaths(t, chiAdapter) }

// noting is a Locker that notes the last key.
func noting(key *string) httplock.Option {
	return httplock.WithLocker(core.LockerFunc(func(_ context.Context, k string, _ ...core.Option) (*core.Lease, error) {
		*key = k
		return nil, nil
	}))
}

func refusing(err error) httplock.Option {
	return httplock.WithLocker(core.LockerFunc(func(context.Context, string, ...core.Option) (*core.Lease, error) { return nil, err }))
}

func post(handler http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, target, nil))
	return w
}

var ok = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// Outside of the router there are no parameters: a request must not pass unlocked for that.
func TestOutsideOfTheRouter(t *testing.T) {
	key := ""
	mux := http.NewServeMux()
	mux.Handle("POST /o/{id}", ok)
	for _, middleware := range []func(http.Handler) http.Handler{
		httplock.ByParam("id", noting(&key)),
		httplock.By(httplock.Query("q"), httplock.WithPerRoute(), noting(&key)),
	} {
		if w := post(middleware(mux), "/o/1?q=7"); w.Code != http.StatusInternalServerError || key != "" {
			t.Errorf("%d, key %q", w.Code, key)
		}
	}
	var pattern string
	outer := func(w http.ResponseWriter, r *http.Request) {
		httplock.By(httplock.Query("q"), httplock.WithLocker(locktest.New(t)))(mux).ServeHTTP(w, r)
		pattern = r.Pattern
	}
	if w := post(http.HandlerFunc(outer), "/o/1?q=7"); w.Code != http.StatusOK || pattern != "POST /o/{id}" {
		t.Errorf("%d, the outer request has the pattern %q", w.Code, pattern)
	}
}

func TestPatternsOfServeMux(t *testing.T) {
	for _, q := range []struct {
		pattern, name, target, want string
		status                      int
	}{
		{"/files/{path...}", "path", "/files/a/b%2Fc", "path:a/b/c", 200},
		{"/files/{path...}", "path", "/files/", "", 400},
		{"/files/{path...}", "pat", "/files/a", "", 500},
		{"/a/{$}", "$", "/a/", "", 400},
		{"POST example.com/o/{id}", "id", "http://example.com/o/%2B", "id:+", 200},
	} {
		key := ""
		mux := http.NewServeMux()
		mux.Handle(q.pattern, httplock.ByParam(q.name, noting(&key))(ok))
		if w := post(mux, q.target); w.Code != q.status || key != q.want {
			t.Errorf("%s at %s: %d, key %q; want %d, %q", q.target, q.pattern, w.Code, key, q.status, q.want)
		}
	}
}

func TestPerRouteKey(t *testing.T) {
	for pattern, want := range map[string]string{
		"POST /o/{id}/pay": `POST /o/\(id\)/pay id:1`,
		"/o/{id}/pay":      `POST /o/\(id\)/pay id:1`,
	} {
		key := ""
		mux := http.NewServeMux()
		mux.Handle(pattern, httplock.ByParam("id", httplock.WithPerRoute(), noting(&key))(ok))
		if post(mux, "/o/1/pay"); key != want {
			t.Errorf("%s: %q, want %q", pattern, key, want)
		}
	}
}

func TestClientGone(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/o/{id}", httplock.ByParam("id", refusing(context.Canceled))(ok))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/o/1", nil).WithContext(ctx))
	if w.Code != httplock.StatusClientGone || w.Body.Len() != 0 {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

// The watched writer must not lose what http.ResponseController finds in the real one.
func TestWriterKeepsItsPowers(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		controller := http.NewResponseController(w)
		if err := controller.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Errorf("SetWriteDeadline: %v", err)
		}
		if err := controller.EnableFullDuplex(); err != nil {
			t.Errorf("EnableFullDuplex: %v", err)
		}
		if _, hijacks := w.(http.Hijacker); !hijacks {
			t.Error("HTTP/1.1 can be hijacked")
		}
	})
	mux := http.NewServeMux()
	mux.Handle("/o/{id}", httplock.ByParam("id", httplock.WithLocker(locktest.New(t)), httplock.WithCooldown(time.Minute))(handler))
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, status := range []int{http.StatusOK, http.StatusConflict} {
		res, err := server.Client().Post(server.URL+"/o/1", "", strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != status {
			t.Errorf("%d, want %d", res.StatusCode, status)
		}
	}
}

func TestAbortHandlerPanicsThrough(t *testing.T) {
	locks := locktest.New(t)
	mux := http.NewServeMux()
	mux.Handle("/o/{id}", httplock.ByParam("id", httplock.WithLocker(locks))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	})))
	func() {
		defer func() {
			if p := recover(); p != http.ErrAbortHandler {
				t.Errorf("panic %v", p)
			}
		}()
		post(mux, "/o/1")
	}()
	lease, err := locks.Acquire(context.Background(), "id:1")
	if err != nil {
		t.Fatal(err)
	}
	_ = lease.Release(context.Background())
}

func TestRefusalOf(t *testing.T) {
	for err, want := range map[error]int{
		core.ErrUnavailable: 503, core.ErrNotAcquired: 409, core.ErrInvalidKey: 400, errors.New("?"): 500,
	} {
		r := httplock.RefusalOf(context.Background(), err)
		if r.Status != want || !errors.Is(r, err) || r.Type == "" || r.Title == "" || (r.RetryAfter > 0) != (want == 409 || want == 503) {
			t.Errorf("%v: %+v", err, r)
		}
	}
}
