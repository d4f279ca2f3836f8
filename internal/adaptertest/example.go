package adaptertest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/latchkit/latchkit/core"
)

// The stage of the adapters' examples, the same for all.

// ExampleLocks stands for locks with a store.
func ExampleLocks() *core.Locks {
	locks, err := core.New(core.Local())
	if err != nil {
		panic(err)
	}
	return locks
}

// ExampleHold holds a key elsewhere until the returned function is called.
func ExampleHold(locks *core.Locks, key string) (release func()) {
	lease, err := locks.Acquire(context.Background(), key)
	if err != nil {
		panic(err)
	}
	return func() { _ = lease.Release(context.Background()) }
}

// ExampleSend has a service answer a request and prints what a client sees: the status, when to come again, and the
// body, or its title where that is a problem.
func ExampleSend(service http.Handler, r *http.Request) {
	w := httptest.NewRecorder()
	service.ServeHTTP(w, r)
	line := fmt.Sprint(w.Code)
	if after := w.Header().Get("Retry-After"); after != "" {
		line += " Retry-After " + after + ":"
	}
	body := w.Body.String()
	if _, title, isProblem := strings.Cut(body, `"title":"`); isProblem {
		body, _, _ = strings.Cut(title, `"`)
	}
	fmt.Println(strings.TrimSpace(line + " " + body))
}
