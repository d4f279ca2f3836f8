package httplock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/httplock"
	"github.com/latchkit/latchkit/internal/adaptertest"
)

// locks stands for one with a store, such as core.New(core.Redis(rdb)).
var locks = adaptertest.ExampleLocks()

// hold holds a key elsewhere until the returned function is called.
func hold(key string) (release func()) { return adaptertest.ExampleHold(locks, key) }

// send has a service answer a request and prints what a client sees.
func send(service http.Handler, r *http.Request) { adaptertest.ExampleSend(service, r) }

// showKey is a handler that shows the key it runs under.
var showKey = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	lease, _ := core.FromContext(r.Context())
	_, _ = io.WriteString(w, lease.Key())
})

// pay is a handler that succeeds.
var pay = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })

func ExampleByParam() {
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{orderID}/pay", httplock.ByParam("orderID", httplock.WithLocker(locks))(pay))
	release := hold("orderID:42") // another request of the same order, anywhere
	send(mux, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	send(mux, httptest.NewRequest(http.MethodPost, "/orders/43/pay", nil))
	release()
	send(mux, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output:
	// 409 Retry-After 1: The resource is busy
	// 201
	// 201
}

func ExampleBy() {
	byTenant := func(r *http.Request) (string, error) {
		return "tenant:" + r.Header.Get("X-Tenant"), nil
	}
	mux := http.NewServeMux()
	mux.Handle("POST /import", httplock.By(byTenant, httplock.WithLocker(locks))(showKey))
	r1 := httptest.NewRequest(http.MethodPost, "/import", nil)
	r1.Header.Set("X-Tenant", "acme")
	send(mux, r1)
	// Output: 200 tenant:acme
}

func ExampleParam() {
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{orderID}/pay", httplock.By(httplock.Param("orderID"), httplock.WithLocker(locks))(showKey))
	send(mux, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	send(mux, httptest.NewRequest(http.MethodPost, "/orders/4%32/pay", nil))
	// Output:
	// 200 orderID:42
	// 200 orderID:42
}

func ExampleQuery() {
	mux := http.NewServeMux()
	mux.Handle("POST /pay", httplock.By(httplock.Query("order"), httplock.WithLocker(locks))(showKey))
	send(mux, httptest.NewRequest(http.MethodPost, "/pay?order=42", nil))
	send(mux, httptest.NewRequest(http.MethodPost, "/pay?order=42&order=43", nil))
	send(mux, httptest.NewRequest(http.MethodPost, "/pay", nil))
	// Output:
	// 200 order:42
	// 400 The request has no usable key
	// 400 The request has no usable key
}

func ExampleHeader() {
	mux := http.NewServeMux()
	mux.Handle("POST /pay", httplock.By(httplock.Header("Idempotency-Key"), httplock.WithLocker(locks))(showKey))
	request := httptest.NewRequest(http.MethodPost, "/pay", nil)
	request.Header.Set("Idempotency-Key", "7f1c")
	send(mux, request)
	// Output: 200 Idempotency-Key:7f1c
}

func ExampleCookie() {
	mux := http.NewServeMux()
	mux.Handle("POST /pay", httplock.By(httplock.Cookie("session"), httplock.WithLocker(locks))(showKey))
	request := httptest.NewRequest(http.MethodPost, "/pay", nil)
	request.AddCookie(&http.Cookie{Name: "session", Value: "s1"})
	send(mux, request)
	// Output: 200 session:s1
}

func ExampleForm() {
	mux := http.NewServeMux()
	mux.Handle("POST /pay", httplock.By(httplock.Form("order"), httplock.WithLocker(locks))(showKey))
	request := httptest.NewRequest(http.MethodPost, "/pay?order=43", strings.NewReader("order=42&amount=10"))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	send(mux, request)
	// Output: 200 order:42
}

func ExampleJSON() {
	mux := http.NewServeMux()
	mux.Handle("POST /pay", httplock.By(httplock.JSON("order.id"), httplock.WithLocker(locks))(showKey))
	send(mux, httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(`{"order":{"id":42},"amount":10}`)))
	send(mux, httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(`{"order":{"id":42,"ID":43}}`)))
	// Output:
	// 200 order.id:42
	// 400 The request has no usable key
}

func ExampleBodyHash() {
	mux := http.NewServeMux()
	mux.Handle("POST /events", httplock.By(httplock.BodyHash(), httplock.WithLocker(locks))(showKey))
	send(mux, httptest.NewRequest(http.MethodPost, "/events", strings.NewReader("abc")))
	// Output: 200 body:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad
}

func ExampleNamed() {
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", httplock.By(httplock.Named("order", httplock.Param("id")), httplock.WithLocker(locks))(showKey))
	mux.Handle("POST /users/{id}", httplock.By(httplock.Named("user", httplock.Param("id")), httplock.WithLocker(locks))(showKey))
	send(mux, httptest.NewRequest(http.MethodPost, "/orders/7", nil))
	send(mux, httptest.NewRequest(http.MethodPost, "/users/7", nil))
	// Output:
	// 200 order:7
	// 200 user:7
}

func ExampleJoin() {
	mux := http.NewServeMux()
	key := httplock.Named("seat", httplock.Join(httplock.Param("flight"), httplock.Query("seat")))
	mux.Handle("POST /flights/{flight}/book", httplock.By(key, httplock.WithLocker(locks))(showKey))
	send(mux, httptest.NewRequest(http.MethodPost, "/flights/LH1/book?seat=4A", nil))
	// Output: 200 seat:flight\\:LH1:seat\\:4A
}

// Without it, the locker of core.SetDefault is used.
func ExampleWithLocker() {
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{orderID}/pay", httplock.ByParam("orderID", httplock.WithLocker(locks))(pay))
	send(mux, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output: 201
}

// Later requests wait for their turn instead of being refused.
func ExampleWithAcquire() {
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{orderID}/pay", httplock.ByParam("orderID", httplock.WithLocker(locks),
		httplock.WithAcquire(core.WithWait(5*time.Second)))(pay))
	time.AfterFunc(10*time.Millisecond, hold("orderID:42")) // the holder is soon done
	send(mux, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output: 201
}

// A second submission of what has just succeeded is turned away.
func ExampleWithCooldown() {
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{orderID}/pay", httplock.ByParam("orderID", httplock.WithLocker(locks), httplock.WithCooldown(time.Minute))(pay))
	send(mux, httptest.NewRequest(http.MethodPost, "/orders/1001/pay", nil))
	send(mux, httptest.NewRequest(http.MethodPost, "/orders/1001/pay", nil))
	// Output:
	// 201
	// 409 Retry-After 60: The request was completed
}

func ExampleWithSuccess() {
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{orderID}/pay", httplock.ByParam("orderID", httplock.WithLocker(locks), httplock.WithCooldown(time.Minute),
		httplock.WithSuccess(func(_ *http.Request, status int) bool {
			return status == http.StatusCreated || status == http.StatusUnprocessableEntity // the order is refused for good
		}))(pay))
	send(mux, httptest.NewRequest(http.MethodPost, "/orders/1002/pay", nil))
	send(mux, httptest.NewRequest(http.MethodPost, "/orders/1002/pay", nil))
	// Output:
	// 201
	// 409 Retry-After 60: The request was completed
}

func ExampleWithRetryAfter() {
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{orderID}/pay", httplock.ByParam("orderID", httplock.WithLocker(locks), httplock.WithRetryAfter(5*time.Second))(pay))
	defer hold("orderID:42")()
	send(mux, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output: 409 Retry-After 5: The resource is busy
}

func ExampleWithPerRoute() {
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{orderID}/pay", httplock.ByParam("orderID", httplock.WithLocker(locks), httplock.WithPerRoute())(showKey))
	send(mux, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output: 200 POST /orders/\(orderID\)/pay orderID:42
}

func ExampleWithMaxBody() {
	mux := http.NewServeMux()
	mux.Handle("POST /pay", httplock.By(httplock.JSON("id"), httplock.WithLocker(locks), httplock.WithMaxBody(16))(showKey))
	send(mux, httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(`{"id":42}`)))
	send(mux, httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(`{"note":"too long","id":42}`)))
	// Output:
	// 200 id:42
	// 413 The body is too large
}

func ExampleWithSkipper() {
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{orderID}/pay", httplock.ByParam("orderID", httplock.WithLocker(locks),
		httplock.WithSkipper(func(r *http.Request) bool { return r.URL.Query().Has("dry-run") }))(pay))
	defer hold("orderID:42")()
	send(mux, httptest.NewRequest(http.MethodPost, "/orders/42/pay?dry-run", nil))
	send(mux, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output:
	// 201
	// 409 Retry-After 1: The resource is busy
}

// Payments are refused while the fallback can lock in this process only.
func ExampleWithAllowDegraded() {
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{orderID}/pay", httplock.ByParam("orderID", httplock.WithLocker(locks), httplock.WithAllowDegraded(false))(pay))
	send(mux, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output: 201
}

func ExampleWithErrorHandler() {
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{orderID}/pay", httplock.ByParam("orderID", httplock.WithLocker(locks),
		httplock.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
			var refusal *httplock.Refusal
			if errors.As(err, &refusal) {
				refusal.Advise(w.Header())
				http.Error(w, "please come back later", refusal.Status)
			}
		}))(pay))
	defer hold("orderID:42")()
	send(mux, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output: 409 Retry-After 1: please come back later
}

func ExampleURLParam() {
	// With chi: router.With(httplock.By(httplock.URLParam("orderID", chi.URLParam))).Post("/orders/{orderID}/pay", pay)
	get := func(r *http.Request, _ string) string { return strings.TrimPrefix(r.URL.EscapedPath(), "/orders/") }
	handler := httplock.By(httplock.URLParam("orderID", get), httplock.WithLocker(locks))(showKey)
	send(handler, httptest.NewRequest(http.MethodPost, "/orders/4%32", nil))
	// Output: 200 orderID:42
}

// A handler that locks by hand answers in the same words.
func ExampleRefusalOf() {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, err := locks.Acquire(r.Context(), "order:42")
		if err != nil {
			httplock.RefusalOf(r.Context(), err).Write(w)
			return
		}
		defer func() { _ = lease.Release(r.Context()) }()
		w.WriteHeader(http.StatusCreated)
	})
	other := hold("order:42")
	send(handler, httptest.NewRequest(http.MethodPost, "/", nil))
	other()
	send(handler, httptest.NewRequest(http.MethodPost, "/", nil))
	// Output:
	// 409 Retry-After 1: The resource is busy
	// 201
}

func ExampleRefusal() {
	refusal := httplock.RefusalOf(context.Background(), core.ErrUnavailable)
	fmt.Println(refusal.Status, refusal.Title, refusal.RetryAfter)
	fmt.Println(errors.Is(refusal, core.ErrUnavailable))
	// Output:
	// 503 The resource cannot be locked now 1s
	// true
}

func ExampleRefusal_Write() {
	w := httptest.NewRecorder()
	httplock.RefusalOf(context.Background(), core.ErrNotAcquired).Write(w)
	fmt.Println(w.Code, w.Header().Get("Content-Type"), w.Header().Get("Retry-After"))
	// Output: 409 application/problem+json 1
}

func ExampleRefusal_Advise() {
	refusal := httplock.RefusalOf(context.Background(), core.ErrUnavailable)
	header := http.Header{}
	refusal.Advise(header)
	fmt.Println(header.Get("Retry-After"))
	// Output: 1
}

func ExampleDebugHandler() {
	admin := func(h http.Handler) http.Handler { return h } // stands for your authentication
	locks, _ := core.New(core.Local())
	lease, _ := locks.Acquire(context.Background(), "order:42")
	defer lease.Release(context.Background())
	mux := http.NewServeMux()
	mux.Handle("GET /debug/locks", admin(httplock.DebugHandler(locks)))

	r := httptest.NewRequest(http.MethodGet, "/debug/locks", nil) // a browser
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("Content-Type"), strings.Contains(w.Body.String(), "order:42"))
	// Output: 200 text/html; charset=utf-8 true
}

func ExampleWithDebugKeys() {
	locks, _ := core.New(core.Local())
	lease, _ := locks.Acquire(context.Background(), "patient:4711")
	defer lease.Release(context.Background())
	handler := httplock.DebugHandler(locks, httplock.WithDebugKeys(func(key string) string {
		class, _, _ := strings.Cut(key, ":")
		return class
	}))
	r := httptest.NewRequest(http.MethodGet, "/debug/locks", nil)
	r.Header.Set("Accept", "application/json")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	fmt.Println(strings.Contains(w.Body.String(), `"key":"patient"`), strings.Contains(w.Body.String(), "4711"))
	// Output: true false
}
