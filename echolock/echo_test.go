package echolock_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/core/locktest"
	"github.com/latchkit/latchkit/echolock"
	"github.com/latchkit/latchkit/httplock"
)

func do(handler http.Handler, method, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return w
}

func post(handler http.Handler, target string) *httptest.ResponseRecorder {
	return do(handler, http.MethodPost, target)
}

func refusing(err error) echolock.Option {
	return echolock.WithLocker(core.LockerFunc(func(context.Context, string, ...core.Option) (*core.Lease, error) { return nil, err }))
}

// noting is a Locker that notes the last key.
func noting(key *string) echolock.Option {
	return echolock.WithLocker(core.LockerFunc(func(_ context.Context, k string, _ ...core.Option) (*core.Lease, error) {
		*key = k
		return nil, nil
	}))
}

func ok(c echo.Context) error { return c.NoContent(http.StatusOK) }

// A service's own error handler sees the original error and keeps its format.
func TestCustomErrorHandler(t *testing.T) {
	e := echo.New()
	var got error
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		got = err
		var he *echo.HTTPError
		if !errors.As(err, &he) {
			t.Errorf("%T", err)
			return
		}
		_ = c.HTML(he.Code, "<p>"+fmt.Sprint(he.Message))
	}
	e.POST("/o/:id", ok, echolock.ByParam("id", refusing(&core.NotAcquiredError{Key: "id:1", RetryAfter: 30 * time.Second})))
	w := post(e, "/o/1")
	var held *core.NotAcquiredError
	var refusal *httplock.Refusal
	if !errors.As(got, &held) || !errors.As(got, &refusal) || held.Key != "id:1" {
		t.Errorf("the handler saw %v", got)
	}
	if w.Code != http.StatusConflict || w.Header().Get("Retry-After") != "1" ||
		!strings.Contains(w.Header().Get("Content-Type"), "html") || !strings.Contains(w.Body.String(), refusal.Title) {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

func TestClientGone(t *testing.T) {
	e := echo.New()
	e.POST("/o/:id", ok, echolock.ByParam("id", refusing(context.Canceled)))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/o/1", nil).WithContext(ctx))
	if w.Code != httplock.StatusClientGone || w.Body.Len() != 0 {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

func TestErrorHandlerOption(t *testing.T) {
	for _, q := range []struct {
		name   string
		handle func(c echo.Context, err error) error
		status int
	}{
		{"returns the refusal", func(_ echo.Context, err error) error { return err }, http.StatusConflict},
		{"returns its own", func(echo.Context, error) error { return echo.ErrTeapot }, http.StatusTeapot},
		{"answers", func(c echo.Context, _ error) error { return c.NoContent(http.StatusAccepted) }, http.StatusAccepted},
		{"does nothing", func(echo.Context, error) error { return nil }, http.StatusConflict},
	} {
		e := echo.New()
		e.POST("/o/:id", ok, echolock.ByParam("id", refusing(core.ErrNotAcquired), echolock.WithErrorHandler(q.handle)))
		if w := post(e, "/o/1"); w.Code != q.status {
			t.Errorf("%s: %d, want %d", q.name, w.Code, q.status)
		}
	}
}

func TestPre(t *testing.T) {
	key := ""
	e := echo.New()
	e.Pre(echolock.By(echolock.Query("q"), noting(&key)))
	e.POST("/o/:id", ok)
	if w := post(e, "/o/1?q=7"); w.Code != http.StatusOK || key != "q:7" {
		t.Errorf("%d, key %q", w.Code, key)
	}
	key = ""
	if w := post(e, "/nowhere"); w.Code != http.StatusNotFound || key != "" {
		t.Errorf("no route: %d, key %q", w.Code, key)
	}
	if w := post(e, "/o/1"); w.Code != http.StatusBadRequest {
		t.Errorf("no key: %d", w.Code)
	}

	for _, middleware := range []echo.MiddlewareFunc{
		echolock.ByParam("id", noting(&key)), // a parameter before the routing
		echolock.By(echolock.Query("q"), noting(&key), echolock.WithPerRoute()),
	} {
		e = echo.New()
		e.Pre(middleware)
		e.POST("/o/:id", ok)
		if w := post(e, "/o/1?q=7"); w.Code != http.StatusInternalServerError {
			t.Errorf("a mistake of the program: %d", w.Code)
		}
	}
}

// Wildcards, hosts, and what echo answers itself.
func TestRoutes(t *testing.T) {
	key := ""
	byRest := echolock.ByParam("*", noting(&key))
	e := echo.New()
	e.POST("/files/*", ok, byRest)
	g := e.Group("/g", byRest)
	g.POST("/a/*", ok)
	host := e.Host("shop.example")
	host.POST("/h/*", ok, byRest)
	e.POST("/only/:id", ok)
	for _, q := range []struct {
		method, target, want string
		status               int
	}{
		{http.MethodPost, "/files/a/b%62", "*:a/bb", 200},
		{http.MethodPost, "/files/a/b%62", "*:a/bb", 200},
		{http.MethodPost, "/g/a/x", "*:x", 200},
		{http.MethodPost, "/g/b", "", 404},
		{http.MethodPost, "/g", "", 404},
		{http.MethodGet, "/g/b/c", "", 404},
		{http.MethodPost, "http://shop.example/h/x", "*:x", 200},
		{http.MethodPost, "http://other.example/h/x", "", 404},
		{http.MethodPost, "/files/", "", 400},
	} {
		key = ""
		if w := do(e, q.method, q.target); w.Code != q.status || key != q.want {
			t.Errorf("%s %s: %d, key %q; want %d, %q", q.method, q.target, w.Code, key, q.status, q.want)
		}
	}

	e.Router().Add(http.MethodPost, "/past/:id", echolock.ByParam("id", noting(&key))(ok)) // in no list of routes
	if w := post(e, "/past/7"); w.Code != http.StatusOK || key != "id:7" {
		t.Errorf("a route of the router: %d, key %q", w.Code, key)
	}

	e = echo.New()
	e.Use(echolock.ByParam("id", noting(&key)))
	e.POST("/o/:id", ok)
	e.RouteNotFound("/*", func(c echo.Context) error { return c.NoContent(http.StatusGone) })
	for method, status := range map[string]int{http.MethodOptions: 204, http.MethodGet: 405} {
		key = ""
		if w := do(e, method, "/o/1"); w.Code != status && w.Code != http.StatusGone || key != "" {
			t.Errorf("%s: %d, key %q", method, w.Code, key)
		}
	}
}

func TestLease(t *testing.T) {
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			outer, writer := c.Request(), c.Response().Writer
			err := func() (err error) {
				defer func() { // as a recovery does, which then uses the request
					if recover() != nil {
						err = echo.ErrTeapot
					}
				}()
				return next(c)
			}()
			if c.Request() != outer || outer.Context().Err() != nil || c.Response().Writer != writer {
				t.Error("the outer request and writer are not put back")
			}
			if _, found := echolock.Lease(c); found {
				t.Error("a lease after the handler")
			}
			return err
		}
	})
	e.POST("/o/:id", func(c echo.Context) error {
		if lease, found := echolock.Lease(c); !found || lease.Key() != "id:1" {
			t.Errorf("lease %v, %v", lease, found)
		}
		if c.QueryParam("panics") != "" {
			panic("as the case wants it")
		}
		return nil
	}, echolock.ByParam("id", echolock.WithLocker(locktest.New(t)), echolock.WithCooldown(time.Minute)))
	if w := post(e, "/o/1?panics=1"); w.Code != http.StatusTeapot {
		t.Errorf("a panic: %d", w.Code)
	}
	if w := post(e, "/o/1"); w.Code != http.StatusOK {
		t.Errorf("%d", w.Code)
	}
	if w := post(e, "/o/1"); w.Code != http.StatusConflict {
		t.Errorf("an empty 200 is a success: %d", w.Code)
	}
}

func TestLeaseLost(t *testing.T) {
	locks := locktest.New(t)
	for _, writes := range []bool{false, true} {
		e := echo.New()
		var got error
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error { got = next(c); return got }
		})
		e.POST("/o/:id", func(c echo.Context) error {
			if err := locks.ForceRelease(context.Background(), "id:1"); err != nil {
				t.Error(err)
			}
			<-c.Request().Context().Done()
			if writes {
				_ = c.String(http.StatusOK, "done")
			}
			return fmt.Errorf("query: %w", c.Request().Context().Err())
		}, echolock.ByParam("id", echolock.WithLocker(locks)))
		w := post(e, "/o/1")
		if writes && (w.Code != http.StatusOK || w.Body.String() != "done" || errors.Is(got, core.ErrLost)) {
			t.Errorf("a written answer: %d %s, %v", w.Code, w.Body, got)
		}
		if !writes && (w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || !errors.Is(got, core.ErrLost)) {
			t.Errorf("%d, %v", w.Code, got)
		}
	}
}

// An error is a failure even where 200 was written.
func TestErrorIsNoSuccess(t *testing.T) {
	e := echo.New()
	e.POST("/o/:id", func(c echo.Context) error {
		_ = c.NoContent(http.StatusOK)
		return errors.New("failed")
	}, echolock.ByParam("id", echolock.WithLocker(locktest.New(t)), echolock.WithCooldown(time.Minute)))
	for range 2 {
		if w := post(e, "/o/1"); w.Code != http.StatusOK {
			t.Errorf("%d", w.Code)
		}
	}
}

func TestAbortHandlerPanicsThrough(t *testing.T) {
	locks := locktest.New(t)
	e := echo.New()
	e.POST("/o/:id", func(echo.Context) error { panic(http.ErrAbortHandler) }, echolock.ByParam("id", echolock.WithLocker(locks)))
	func() {
		defer func() {
			if p := recover(); p != http.ErrAbortHandler {
				t.Errorf("panic %v", p)
			}
		}()
		post(e, "/o/1")
	}()
	lease, err := locks.Acquire(context.Background(), "id:1")
	if err != nil {
		t.Fatal(err)
	}
	_ = lease.Release(context.Background())
}
