package ginlock_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/ginlock"
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
func showKey(c *gin.Context) {
	lease, _ := ginlock.Lease(c)
	c.String(http.StatusOK, lease.Key())
}

// pay is a handler that succeeds.
func pay(c *gin.Context) { c.Status(http.StatusCreated) }

func ExampleByParam() {
	r := gin.New()
	r.POST("/orders/:orderID/pay", ginlock.ByParam("orderID", ginlock.WithLocker(locks)), pay)
	release := hold("orderID:42") // another request of the same order, anywhere
	send(r, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	send(r, httptest.NewRequest(http.MethodPost, "/orders/43/pay", nil))
	release()
	send(r, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output:
	// 409 Retry-After 1: The resource is busy
	// 201
	// 201
}

func ExampleBy() {
	byTenant := func(c *gin.Context) (string, error) {
		return "tenant:" + c.GetHeader("X-Tenant"), nil
	}
	r := gin.New()
	r.POST("/import", ginlock.By(byTenant, ginlock.WithLocker(locks)), showKey)
	r1 := httptest.NewRequest(http.MethodPost, "/import", nil)
	r1.Header.Set("X-Tenant", "acme")
	send(r, r1)
	// Output: 200 tenant:acme
}

func ExampleParam() {
	r := gin.New()
	r.POST("/orders/:orderID/pay", ginlock.By(ginlock.Param("orderID"), ginlock.WithLocker(locks)), showKey)
	send(r, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	send(r, httptest.NewRequest(http.MethodPost, "/orders/4%32/pay", nil))
	// Output:
	// 200 orderID:42
	// 200 orderID:42
}

func ExampleQuery() {
	r := gin.New()
	r.POST("/pay", ginlock.By(ginlock.Query("order"), ginlock.WithLocker(locks)), showKey)
	send(r, httptest.NewRequest(http.MethodPost, "/pay?order=42", nil))
	send(r, httptest.NewRequest(http.MethodPost, "/pay?order=42&order=43", nil))
	send(r, httptest.NewRequest(http.MethodPost, "/pay", nil))
	// Output:
	// 200 order:42
	// 400 The request has no usable key
	// 400 The request has no usable key
}

func ExampleHeader() {
	r := gin.New()
	r.POST("/pay", ginlock.By(ginlock.Header("Idempotency-Key"), ginlock.WithLocker(locks)), showKey)
	request := httptest.NewRequest(http.MethodPost, "/pay", nil)
	request.Header.Set("Idempotency-Key", "7f1c")
	send(r, request)
	// Output: 200 Idempotency-Key:7f1c
}

func ExampleCookie() {
	r := gin.New()
	r.POST("/pay", ginlock.By(ginlock.Cookie("session"), ginlock.WithLocker(locks)), showKey)
	request := httptest.NewRequest(http.MethodPost, "/pay", nil)
	request.AddCookie(&http.Cookie{Name: "session", Value: "s1"})
	send(r, request)
	// Output: 200 session:s1
}

func ExampleForm() {
	r := gin.New()
	r.POST("/pay", ginlock.By(ginlock.Form("order"), ginlock.WithLocker(locks)), showKey)
	request := httptest.NewRequest(http.MethodPost, "/pay?order=43", strings.NewReader("order=42&amount=10"))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	send(r, request)
	// Output: 200 order:42
}

func ExampleJSON() {
	r := gin.New()
	r.POST("/pay", ginlock.By(ginlock.JSON("order.id"), ginlock.WithLocker(locks)), showKey)
	send(r, httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(`{"order":{"id":42},"amount":10}`)))
	send(r, httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(`{"order":{"id":42,"ID":43}}`)))
	// Output:
	// 200 order.id:42
	// 400 The request has no usable key
}

func ExampleBodyHash() {
	r := gin.New()
	r.POST("/events", ginlock.By(ginlock.BodyHash(), ginlock.WithLocker(locks)), showKey)
	send(r, httptest.NewRequest(http.MethodPost, "/events", strings.NewReader("abc")))
	// Output: 200 body:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad
}

func ExampleNamed() {
	r := gin.New()
	r.POST("/orders/:id", ginlock.By(ginlock.Named("order", ginlock.Param("id")), ginlock.WithLocker(locks)), showKey)
	r.POST("/users/:id", ginlock.By(ginlock.Named("user", ginlock.Param("id")), ginlock.WithLocker(locks)), showKey)
	send(r, httptest.NewRequest(http.MethodPost, "/orders/7", nil))
	send(r, httptest.NewRequest(http.MethodPost, "/users/7", nil))
	// Output:
	// 200 order:7
	// 200 user:7
}

func ExampleJoin() {
	r := gin.New()
	key := ginlock.Named("seat", ginlock.Join(ginlock.Param("flight"), ginlock.Query("seat")))
	r.POST("/flights/:flight/book", ginlock.By(key, ginlock.WithLocker(locks)), showKey)
	send(r, httptest.NewRequest(http.MethodPost, "/flights/LH1/book?seat=4A", nil))
	// Output: 200 seat:flight\\:LH1:seat\\:4A
}

// Without it, the locker of core.SetDefault is used.
func ExampleWithLocker() {
	r := gin.New()
	r.POST("/orders/:orderID/pay", ginlock.ByParam("orderID", ginlock.WithLocker(locks)), pay)
	send(r, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output: 201
}

// Later requests wait for their turn instead of being refused.
func ExampleWithAcquire() {
	r := gin.New()
	r.POST("/orders/:orderID/pay", ginlock.ByParam("orderID", ginlock.WithLocker(locks),
		ginlock.WithAcquire(core.WithWait(5*time.Second))), pay)
	time.AfterFunc(10*time.Millisecond, hold("orderID:42")) // the holder is soon done
	send(r, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output: 201
}

// A second submission of what has just succeeded is turned away.
func ExampleWithCooldown() {
	r := gin.New()
	r.POST("/orders/:orderID/pay", ginlock.ByParam("orderID", ginlock.WithLocker(locks), ginlock.WithCooldown(time.Minute)), pay)
	send(r, httptest.NewRequest(http.MethodPost, "/orders/1001/pay", nil))
	send(r, httptest.NewRequest(http.MethodPost, "/orders/1001/pay", nil))
	// Output:
	// 201
	// 409 Retry-After 60: The request was completed
}

func ExampleWithSuccess() {
	r := gin.New()
	r.POST("/orders/:orderID/pay", ginlock.ByParam("orderID", ginlock.WithLocker(locks), ginlock.WithCooldown(time.Minute),
		ginlock.WithSuccess(func(c *gin.Context) bool {
			status := c.Writer.Status()
			return status == http.StatusCreated || status == http.StatusUnprocessableEntity // the order is refused for good
		})), pay)
	send(r, httptest.NewRequest(http.MethodPost, "/orders/1002/pay", nil))
	send(r, httptest.NewRequest(http.MethodPost, "/orders/1002/pay", nil))
	// Output:
	// 201
	// 409 Retry-After 60: The request was completed
}

func ExampleWithRetryAfter() {
	r := gin.New()
	r.POST("/orders/:orderID/pay", ginlock.ByParam("orderID", ginlock.WithLocker(locks), ginlock.WithRetryAfter(5*time.Second)), pay)
	defer hold("orderID:42")()
	send(r, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output: 409 Retry-After 5: The resource is busy
}

func ExampleWithPerRoute() {
	r := gin.New()
	r.POST("/orders/:orderID/pay", ginlock.ByParam("orderID", ginlock.WithLocker(locks), ginlock.WithPerRoute()), showKey)
	send(r, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output: 200 POST /orders/:orderID/pay orderID:42
}

func ExampleWithMaxBody() {
	r := gin.New()
	r.POST("/pay", ginlock.By(ginlock.JSON("id"), ginlock.WithLocker(locks), ginlock.WithMaxBody(16)), showKey)
	send(r, httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(`{"id":42}`)))
	send(r, httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(`{"note":"too long","id":42}`)))
	// Output:
	// 200 id:42
	// 413 The body is too large
}

func ExampleWithSkipper() {
	r := gin.New()
	r.POST("/orders/:orderID/pay", ginlock.ByParam("orderID", ginlock.WithLocker(locks),
		ginlock.WithSkipper(func(c *gin.Context) bool { return c.Request.URL.Query().Has("dry-run") })), pay)
	defer hold("orderID:42")()
	send(r, httptest.NewRequest(http.MethodPost, "/orders/42/pay?dry-run", nil))
	send(r, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output:
	// 201
	// 409 Retry-After 1: The resource is busy
}

// Payments are refused while the fallback can lock in this process only.
func ExampleWithAllowDegraded() {
	r := gin.New()
	r.POST("/orders/:orderID/pay", ginlock.ByParam("orderID", ginlock.WithLocker(locks), ginlock.WithAllowDegraded(false)), pay)
	send(r, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output: 201
}

func ExampleWithErrorHandler() {
	r := gin.New()
	r.POST("/orders/:orderID/pay", ginlock.ByParam("orderID", ginlock.WithLocker(locks),
		ginlock.WithErrorHandler(func(c *gin.Context, err error) {
			var refusal *httplock.Refusal
			if errors.As(err, &refusal) {
				refusal.Advise(c.Writer.Header())
				c.String(refusal.Status, "please come back later")
			}
		})), pay)
	defer hold("orderID:42")()
	send(r, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output: 409 Retry-After 1: please come back later
}

func ExampleLease() {
	r := gin.New()
	r.POST("/orders/:orderID/pay", ginlock.ByParam("orderID", ginlock.WithLocker(locks)), func(c *gin.Context) {
		if lease, ok := ginlock.Lease(c); ok {
			// UPDATE orders SET …, fence = $2 WHERE id = $1 AND fence < $2
			c.String(http.StatusOK, "%s, fenced: %v", lease.Key(), lease.Fence() > 0)
		}
	})
	send(r, httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	// Output: 200 orderID:42, fenced: true
}
