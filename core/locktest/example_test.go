package locktest_test

import (
	"context"
	"testing"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/core/locktest"
)

// A unit test of code that takes a core.Locker.
func ExampleNew() {
	pay := func(ctx context.Context, locker core.Locker, order string) error {
		return core.Do(ctx, locker, "order:"+order, func(context.Context) error { return nil })
	}
	_ = func(t *testing.T) {
		locker := locktest.New(t) // in memory; the test fails if a lease is never released
		if err := pay(t.Context(), locker, "42"); err != nil {
			t.Error(err)
		}
	}
	// Output:
}

// The tests of a Backend of one's own.
func ExampleRun() {
	_ = func(t *testing.T) {
		locktest.Run(t, func(t *testing.T) core.Backend { return core.Local() })
	}
	// Output:
}
