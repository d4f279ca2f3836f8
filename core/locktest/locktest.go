// Package locktest helps to test with locks, and to test a core.Backend.
//
// New gives a Locker for a user's own unit tests: in memory, and closed with the test. Run is the suite that every
// Backend of latchkit passes; one written elsewhere should pass it too.
package locktest

import (
	"context"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
)

// New returns an engine over core.Local() that is closed at the end of the test, which fails if a lease was never
// released.
func New(t testing.TB, opts ...core.Option) *core.Locks {
	t.Helper()
	return engine(t, core.Local(), opts...)
}

func engine(t testing.TB, b core.Backend, opts ...core.Option) *core.Locks {
	t.Helper()
	locks, err := core.New(b, opts...)
	if err != nil {
		t.Fatalf("core.New: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := locks.Close(ctx); err != nil && !t.Failed() {
			t.Errorf("locktest: %v", err)
		}
	})
	return locks
}
