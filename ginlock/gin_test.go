package ginlock_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gin-gonic/gin/binding"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/core/locktest"
	"github.com/latchkit/latchkit/ginlock"
	"github.com/latchkit/latchkit/httplock"
)

func post(handler http.Handler, target, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, target, strings.NewReader(body)))
	return w
}

func refusing(err error) ginlock.Option {
	return ginlock.WithLocker(core.LockerFunc(func(context.Context, string, ...core.Option) (*core.Lease, error) { return nil, err }))
}

// An error middleware renders c.Errors: a 409 is answered before and has no error, a 503 has one and no body yet.
func TestErrorMiddleware(t *testing.T) {
	render := func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 {
			var refusal *httplock.Refusal
			if !errors.As(c.Errors.Last(), &refusal) {
				t.Errorf("c.Errors has %v", c.Errors)
			}
			c.JSON(-1, gin.H{"mine": true})
		}
	}
	for _, q := range []struct {
		err    error
		status int
		body   string
	}{
		{&core.NotAcquiredError{Key: "id:1"}, http.StatusConflict, `"type"`},
		{core.ErrUnavailable, http.StatusServiceUnavailable, `{"mine":true}`},
		{core.ErrConflict, http.StatusInternalServerError, `{"mine":true}`},
	} {
		engine := gin.New()
		engine.POST("/o/:id", render, ginlock.ByParam("id", refusing(q.err)), func(*gin.Context) { t.Error("the handler has run") })
		w := post(engine, "/o/1", "")
		if body := w.Body.String(); w.Code != q.status || !strings.Contains(body, q.body) || strings.Count(body, "{") != 1 {
			t.Errorf("%v: %d %s", q.err, w.Code, body)
		}
	}
}

func TestErrorHandlerIsAborted(t *testing.T) {
	engine := gin.New()
	engine.POST("/o/:id", ginlock.ByParam("id", refusing(core.ErrUnavailable), ginlock.WithErrorHandler(func(c *gin.Context, err error) {
		if !c.IsAborted() || !errors.Is(err, core.ErrUnavailable) {
			t.Errorf("aborted %v, %v", c.IsAborted(), err)
		}
		c.String(-1, "mine")
	})), func(*gin.Context) { t.Error("the handler has run") })
	if w := post(engine, "/o/1", ""); w.Code != http.StatusServiceUnavailable || w.Body.String() != "mine" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestLease(t *testing.T) {
	engine := gin.New()
	engine.Use(func(c *gin.Context) {
		outer := c.Request
		func() {
			defer func() { _ = recover() }() // as a recovery does, which then uses the request
			c.Next()
		}()
		if c.Request != outer || c.Request.Context().Err() != nil {
			t.Error("the outer request is not put back")
		}
		if _, ok := ginlock.Lease(c); ok {
			t.Error("a lease after the handler")
		}
	})
	var ended *core.Lease
	engine.POST("/o/:id", ginlock.ByParam("id", ginlock.WithLocker(locktest.New(t))), func(c *gin.Context) {
		lease, ok := ginlock.Lease(c)
		if !ok || lease.Key() != "id:1" {
			t.Errorf("lease %v, %v", lease, ok)
		}
		ended = lease
		c.Request = c.Request.WithContext(context.Background()) // as a later middleware may
		if c.Query("panics") != "" {
			panic("as the case wants it")
		}
	})
	for _, target := range []string{"/o/1", "/o/1?panics=1"} {
		post(engine, target, "")
		if cause := context.Cause(ended.Context()); !errors.Is(cause, core.ErrReleased) {
			t.Errorf("%s: the lease's context ended with %v", target, cause)
		}
	}
}

// A handler that hands the cancellation of a lost lease to c.Error is answered 503; one that has written is not.
func TestLeaseLost(t *testing.T) {
	locks := locktest.New(t)
	for _, writes := range []bool{false, true} {
		engine := gin.New()
		var errs []*gin.Error
		engine.Use(func(c *gin.Context) { c.Next(); errs = c.Errors })
		engine.POST("/o/:id", ginlock.ByParam("id", ginlock.WithLocker(locks), ginlock.WithRetryAfter(2*time.Second)), func(c *gin.Context) {
			if err := locks.ForceRelease(context.Background(), "id:1"); err != nil {
				t.Error(err)
			}
			<-c.Request.Context().Done()
			_ = c.Error(c.Request.Context().Err())
			if writes {
				c.String(http.StatusOK, "done")
			}
		})
		w := post(engine, "/o/1", "")
		if writes {
			if w.Code != http.StatusOK || w.Body.String() != "done" || len(errs) != 1 {
				t.Errorf("a written answer: %d %s, %v", w.Code, w.Body, errs)
			}
			continue
		}
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "2" || !errors.Is(errs[len(errs)-1], core.ErrLost) {
			t.Errorf("%d, Retry-After %q, %v", w.Code, w.Header().Get("Retry-After"), errs)
		}
	}
}

// No cooldown after errors that were added while nothing was written: an error middleware has yet to answer.
func TestPendingErrorIsNoSuccess(t *testing.T) {
	for _, writes := range []bool{false, true} {
		engine := gin.New()
		engine.POST("/o/:id", ginlock.ByParam("id", ginlock.WithLocker(locktest.New(t)), ginlock.WithCooldown(time.Minute)), func(c *gin.Context) {
			_ = c.Error(errors.New("failed"))
			if writes {
				c.Status(http.StatusOK)
				c.Writer.WriteHeaderNow()
			}
		})
		post(engine, "/o/1", "")
		if again := post(engine, "/o/1", ""); writes != (again.Code == http.StatusConflict) {
			t.Errorf("written %v: the next gets %d", writes, again.Code)
		}
	}
}

func TestAbortHandlerPanicsThrough(t *testing.T) {
	locks := locktest.New(t)
	engine := gin.New()
	engine.POST("/o/:id", ginlock.ByParam("id", ginlock.WithLocker(locks)), func(*gin.Context) { panic(http.ErrAbortHandler) })
	func() {
		defer func() {
			if p := recover(); p != http.ErrAbortHandler {
				t.Errorf("panic %v", p)
			}
		}()
		post(engine, "/o/1", "")
	}()
	lease, err := locks.Acquire(context.Background(), "id:1")
	if err != nil {
		t.Fatal(err)
	}
	_ = lease.Release(context.Background())
}

func TestBodyBytesKey(t *testing.T) {
	type order struct{ ID, Note string }
	body := `{"id":"7","note":"x"}`
	for _, boundBefore := range []bool{false, true} {
		engine := gin.New()
		if boundBefore {
			engine.Use(func(c *gin.Context) {
				if err := c.ShouldBindBodyWith(&order{}, binding.JSON); err != nil {
					t.Error(err)
				}
			})
		}
		engine.POST("/o", ginlock.By(ginlock.JSON("id"), ginlock.WithLocker(locktest.New(t))), func(c *gin.Context) {
			lease, _ := ginlock.Lease(c)
			var first, second order
			if err := c.ShouldBindBodyWith(&first, binding.JSON); err != nil || first.Note != "x" {
				t.Errorf("ShouldBindBodyWith: %+v, %v", first, err)
			}
			if err := c.ShouldBindJSON(&second); err != nil || second != first || lease.Key() != "id:7" {
				t.Errorf("ShouldBindJSON: %+v, %v; key %q", second, err, lease.Key())
			}
		})
		if w := post(engine, "/o", body); w.Code != http.StatusOK {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
}

func TestCachedBodyIsCapped(t *testing.T) {
	engine := gin.New()
	engine.Use(func(c *gin.Context) {
		data, _ := io.ReadAll(c.Request.Body)
		c.Set(gin.BodyBytesKey, data)
	})
	engine.POST("/o", ginlock.By(ginlock.JSON("id"), ginlock.WithLocker(locktest.New(t)), ginlock.WithMaxBody(5)), func(*gin.Context) {})
	if w := post(engine, "/o", `{"id":1}`); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("%d", w.Code)
	}
}

func TestPatternsOfGin(t *testing.T) {
	for _, q := range []struct{ route, name, target, want string }{
		{"/files/*path", "path", "/files/a/b%2525%62", "path:/a/b%25b"},
		{"/files/*path", "path", "/files/a+b/c%20d%62", "path:/a+b/c db"},
		{"/u/user_:name/x", "name", "/u/user_a%2Bb%20/x", "name:a+b "},
		{"/v1/:a/:b", "b", "/v1/x%25/y%25z", "b:y%z"},
		{"/v1/:a/:b", "a", "/v1/x%2520%20/y", "a:x%20 "},
	} {
		for _, set := range []func(*gin.Engine){
			func(*gin.Engine) {},
			func(e *gin.Engine) { e.UseRawPath = true },
			func(e *gin.Engine) { e.UseRawPath, e.UnescapePathValues = true, false },
			func(e *gin.Engine) { e.UseEscapedPath = true },
			func(e *gin.Engine) { e.UseEscapedPath, e.UnescapePathValues, e.RemoveExtraSlash = true, false, true },
		} {
			key := ""
			engine := gin.New()
			set(engine)
			engine.POST(q.route, ginlock.ByParam(q.name, ginlock.WithLocker(core.LockerFunc(
				func(_ context.Context, k string, _ ...core.Option) (*core.Lease, error) { key = k; return nil, nil }))), func(*gin.Context) {})
			if post(engine, q.target, ""); key != q.want {
				t.Errorf("%s on %s: %q, want %q", q.target, q.route, key, q.want)
			}
			if !engine.RemoveExtraSlash {
				continue
			}
			if post(engine, strings.Replace(q.target, "/", "//", 1), ""); key != q.want {
				t.Errorf("//%s on %s: %q, want %q", q.target, q.route, key, q.want)
			}
		}
	}
}

func TestConstructorsPanic(t *testing.T) {
	for what, make := range map[string]func(){
		"By(nil)":               func() { ginlock.By(nil) },
		"ByParam of no name":    func() { ginlock.ByParam("") },
		"Header of no name":     func() { ginlock.Header("") },
		"Named of no name":      func() { ginlock.Named("", ginlock.Param("id")) },
		"Named(nil)":            func() { ginlock.Named("x", nil) },
		"Join()":                func() { ginlock.Join() },
		"Join(nil)":             func() { ginlock.Join(nil) },
		"WithCooldown(-1)":      func() { ginlock.WithCooldown(-1) },
		"WithRetryAfter(-1)":    func() { ginlock.WithRetryAfter(-1) },
		"WithMaxBody(0)":        func() { ginlock.WithMaxBody(0) },
		"WithLocker(nil)":       func() { ginlock.WithLocker(nil) },
		"WithSkipper(nil)":      func() { ginlock.WithSkipper(nil) },
		"WithErrorHandler(nil)": func() { ginlock.WithErrorHandler(nil) },
		"WithSuccess(nil)":      func() { ginlock.WithSuccess(nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", what)
				}
			}()
			make()
		}()
	}
}
