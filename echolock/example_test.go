package echolock_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/echolock"
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
func showKey(c echo.Context) error {
	lease, _ := echolock.Lease(c)
	return c.String(http.StatusOK, lease.Key())
}

// pay is a handler that succeeds.
func pay(c echo.Context) error { return c.NoContent(http.StatusCreated) }

func ExampleByParam() {
	e := echo.New()
	e.POST("/orders/:orderID/pay", pay, echolock.ByParam("orderID", echolock.WithLocker(locks)))
	release := hold("orderID:42") // another request of the same order, anywhere
	send(e, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	send(e, httptest.NewRequest(http.MethodPost, "/orders/43/pay", nil))
	release()
	send(e, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output:
	// 409 Retry-After 1: The resource is busy
	// 201
	// 201
}

func ExampleBy() {
	byTenant := func(c echo.Context) (string, error) {
		return "tenant:" + c.Request().Header.Get("X-Tenant"), nil
	}
	e := echo.New()
	e.POST("/import", showKey, echolock.By(byTenant, echolock.WithLocker(locks)))
	r1 := httptest.NewRequest(http.MethodPost, "/import", nil)
	r1.Header.Set("X-Tenant", "acme")
	send(e, r1)
	// Output: 200 tenant:acme
}

func ExampleParam() {
	e := echo.New()
	e.POST("/orders/:orderID/pay", showKey, echolock.By(echolock.Param("orderID"), echolock.WithLocker(locks)))
	send(e, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	send(e, httptest.NewRequest(http.MethodPost, "/orders/4%32/pay", nil))
	// Output:
	// 200 orderID:42
	// 200 orderID:42
}

func ExampleQuery() {
	e := echo.New()
	e.POST("/pay", showKey, echolock.By(echolock.Query("order"), echolock.WithLocker(locks)))
	send(e, httptest.NewRequest(http.MethodPost, "/pay?order=42", nil))
	send(e, httptest.NewRequest(http.MethodPost, "/pay?order=42&order=43", nil))
	send(e, httptest.NewRequest(http.MethodPost, "/pay", nil))
	// Output:
	// 200 order:42
	// 400 The request has no usable key
	// 400 The request has no usable key
}

func ExampleHeader() {
	e := echo.New()
	e.POST("/pay", showKey, echolock.By(echolock.Header("Idempotency-Key"), echolock.WithLocker(locks)))
	request := httptest.NewRequest(http.MethodPost, "/pay", nil)
	request.Header.Set("Idempotency-Key", "7f1c")
	send(e, request)
	// Output: 200 Idempotency-Key:7f1c
}

func ExampleCookie() {
	e := echo.New()
	e.POST("/pay", showKey, echolock.By(echolock.Cookie("session"), echolock.WithLocker(locks)))
	request := httptest.NewRequest(http.MethodPost, "/pay", nil)
	request.AddCookie(&http.Cookie{Name: "session", Value: "s1"})
	send(e, request)
	// Output: 200 session:s1
}

func ExampleForm() {
	e := echo.New()
	e.POST("/pay", showKey, echolock.By(echolock.Form("order"), echolock.WithLocker(locks)))
	request := httptest.NewRequest(http.MethodPost, "/pay?order=43", strings.NewReader("order=42&amount=10"))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	send(e, request)
	// Output: 200 order:42
}

func ExampleJSON() {
	e := echo.New()
	e.POST("/pay", showKey, echolock.By(echolock.JSON("order.id"), echolock.WithLocker(locks)))
	send(e, httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(`{"order":{"id":42},"amount":10}`)))
	send(e, httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(`{"order":{"id":42,"ID":43}}`)))
	// Output:
	// 200 order.id:42
	// 400 The request has no usable key
}

func ExampleBodyHash() {
	e := echo.New()
	e.POST("/events", showKey, echolock.By(echolock.BodyHash(), echolock.WithLocker(locks)))
	send(e, httptest.NewRequest(http.MethodPost, "/events", strings.NewReader("abc")))
	// Output: 200 body:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad
}

func ExampleNamed() {
	e := echo.New()
	e.POST("/orders/:id", showKey, echolock.By(echolock.Named("order", echolock.Param("id")), echolock.WithLocker(locks)))
	e.POST("/users/:id", showKey, echolock.By(echolock.Named("user", echolock.Param("id")), echolock.WithLocker(locks)))
	send(e, httptest.NewRequest(http.MethodPost, "/orders/7", nil))
	send(e, httptest.NewRequest(http.MethodPost, "/users/7", nil))
	// Output:
	// 200 order:7
	// 200 user:7
}

func ExampleJoin() {
	e := echo.New()
	key := echolock.Named("seat", echolock.Join(echolock.Param("flight"), echolock.Query("seat")))
	e.POST("/flights/:flight/book", showKey, echolock.By(key, echolock.WithLocker(locks)))
	send(e, httptest.NewRequest(http.MethodPost, "/flights/LH1/book?seat=4A", nil))
	// Output: 200 seat:flight\\:LH1:seat\\:4A
}

// Without it, the locker of core.SetDefault is used.
func ExampleWithLocker() {
	e := echo.New()
	e.POST("/orders/:orderID/pay", pay, echolock.ByParam("orderID", echolock.WithLocker(locks)))
	send(e, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output: 201
}

// Later requests wait for their turn instead of being refused.
func ExampleWithAcquire() {
	e := echo.New()
	e.POST("/orders/:orderID/pay", pay, echolock.ByParam("orderID", echolock.WithLocker(locks),
		echolock.WithAcquire(core.WithWait(5*time.Second))))
	time.AfterFunc(10*time.Millisecond, hold("orderID:42")) // the holder is soon done
	send(e, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output: 201
}

// A second submission of what has just succeeded is turned away.
func ExampleWithCooldown() {
	e := echo.New()
	e.POST("/orders/:orderID/pay", pay, echolock.ByParam("orderID", echolock.WithLocker(locks), echolock.WithCooldown(time.Minute)))
	send(e, httptest.NewRequest(http.MethodPost, "/orders/1001/pay", nil))
	send(e, httptest.NewRequest(http.MethodPost, "/orders/1001/pay", nil))
	// Output:
	// 201
	// 409 Retry-After 60: The request was completed
}

func ExampleWithSuccess() {
	e := echo.New()
	e.POST("/orders/:orderID/pay", pay, echolock.ByParam("orderID", echolock.WithLocker(locks), echolock.WithCooldown(time.Minute),
		echolock.WithSuccess(func(c echo.Context, err error) bool {
			status := c.Response().Status
			return err == nil && (status == http.StatusCreated || status == http.StatusUnprocessableEntity) // refused for good
		})))
	send(e, httptest.NewRequest(http.MethodPost, "/orders/1002/pay", nil))
	send(e, httptest.NewRequest(http.MethodPost, "/orders/1002/pay", nil))
	// Output:
	// 201
	// 409 Retry-After 60: The request was completed
}

func ExampleWithRetryAfter() {
	e := echo.New()
	e.POST("/orders/:orderID/pay", pay, echolock.ByParam("orderID", echolock.WithLocker(locks), echolock.WithRetryAfter(5*time.Second)))
	defer hold("orderID:42")()
	send(e, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output: 409 Retry-After 5: The resource is busy
}

func ExampleWithPerRoute() {
	e := echo.New()
	e.POST("/orders/:orderID/pay", showKey, echolock.ByParam("orderID", echolock.WithLocker(locks), echolock.WithPerRoute()))
	send(e, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output: 200 POST /orders/:orderID/pay orderID:42
}

func ExampleWithMaxBody() {
	e := echo.New()
	e.POST("/pay", showKey, echolock.By(echolock.JSON("id"), echolock.WithLocker(locks), echolock.WithMaxBody(16)))
	send(e, httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(`{"id":42}`)))
	send(e, httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(`{"note":"too long","id":42}`)))
	// Output:
	// 200 id:42
	// 413 The body is too large
}

func ExampleWithSkipper() {
	e := echo.New()
	e.POST("/orders/:orderID/pay", pay, echolock.ByParam("orderID", echolock.WithLocker(locks),
		echolock.WithSkipper(func(c echo.Context) bool { return c.QueryParams().Has("dry-run") })))
	defer hold("orderID:42")()
	send(e, httptest.NewRequest(http.MethodPost, "/orders/42/pay?dry-run", nil))
	send(e, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output:
	// 201
	// 409 Retry-After 1: The resource is busy
}

// Payments are refused while the fallback can lock in this process only.
func ExampleWithAllowDegraded() {
	e := echo.New()
	e.POST("/orders/:orderID/pay", pay, echolock.ByParam("orderID", echolock.WithLocker(locks), echolock.WithAllowDegraded(false)))
	send(e, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output: 201
}

func ExampleWithErrorHandler() {
	e := echo.New()
	e.POST("/orders/:orderID/pay", pay, echolock.ByParam("orderID", echolock.WithLocker(locks),
		echolock.WithErrorHandler(func(c echo.Context, err error) error {
			var refusal *httplock.Refusal
			if errors.As(err, &refusal) {
				refusal.Advise(c.Response().Header())
				return c.String(refusal.Status, "please come back later")
			}
			return err
		})))
	defer hold("orderID:42")()
	send(e, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output: 409 Retry-After 1: please come back later
}

func ExampleLease() {
	e := echo.New()
	e.POST("/orders/:orderID/pay", func(c echo.Context) error {
		lease, ok := echolock.Lease(c)
		if !ok {
			return echo.ErrInternalServerError
		}
		// UPDATE orders SET …, fence = $2 WHERE id = $1 AND fence < $2
		return c.String(http.StatusOK, fmt.Sprintf("%s, fenced: %v", lease.Key(), lease.Fence() > 0))
	}, echolock.ByParam("orderID", echolock.WithLocker(locks)))
	send(e, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output: 200 orderID:42, fenced: true
}
