package core_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkit/latchkit/core"
)

// While the store hangs, operations gather in batches that have the time of their last: nobody waits for longer than his
// own all the same.
func TestNoBatchKeepsACallerPastItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		locks := newLocks(t, b, core.WithTTL(time.Hour))
		var leases []*core.Lease
		for i := range 20 {
			leases = append(leases, acquire(t, locks, fmt.Sprint("k", i)))
		}
		b.set(func(ctx context.Context, op *core.Op) bool { hang(ctx, op); return true }, nil)
		done := make(chan struct{})
		for i, lease := range leases {
			go func() {
				time.Sleep(time.Duration(i) * 150 * time.Millisecond)
				began := time.Now()
				if i%2 == 0 {
					wantErr(t, lease.Release(t.Context()), core.ErrUnavailable)
				} else {
					_, err := locks.Acquire(t.Context(), fmt.Sprint("other", i))
					wantErr(t, err, core.ErrUnavailable)
				}
				if took := time.Since(began); took > 2200*time.Millisecond {
					t.Errorf("the one of %d took %v, want 2s", i, took)
				}
				done <- struct{}{}
			}()
		}
		for range leases {
			<-done
		}
		b.set(nil, nil)
		time.Sleep(10 * time.Second) // what was in doubt is undone
		for i := range leases {
			if key := fmt.Sprint("other", i); b.held(t, key) {
				t.Errorf("%s stays behind", key)
			}
			if key := fmt.Sprint("k", i); i%2 == 0 && b.held(t, key) {
				t.Errorf("%s was not freed", key)
			}
		}
	})
}

// A caller that ends while its operation waits for a place in a batch is answered at once, and nothing is sent for it.
func TestCancelBeforeTheBatchLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		locks := newLocks(t, b)
		let := make(chan struct{})
		b.set(func(context.Context, *core.Op) bool { <-let; return false }, nil)
		for i := range 2 { // the lone ones
			go locks.Acquire(t.Context(), fmt.Sprint("lone", i))
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error)
		go func() {
			_, err := locks.Acquire(ctx, "k")
			errs <- err
		}()
		synctest.Wait()
		cancel()
		wantErr(t, <-errs, context.Canceled)
		close(let)
		synctest.Wait()
		if n := b.count(core.Try); n != 2 {
			t.Errorf("%d tries, want 2", n)
		}
	})
}

// A Backend that leaves an operation without an answer has not said that somebody holds the key, nor that nobody does.
func TestNoAnswerIsNoVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		locks := newLocks(t, b, core.WithTTL(3*time.Second))
		lease := acquire(t, locks, "held")
		b.set(func(context.Context, *core.Op) bool { return true }, nil)
		_, err := locks.Acquire(t.Context(), "k")
		wantErr(t, err, core.ErrUnavailable)
		time.Sleep(2 * time.Second)
		if err := context.Cause(lease.Context()); err != nil {
			t.Errorf("lost by a renewal without an answer: %v", err)
		}
		b.set(nil, nil)
		time.Sleep(5 * time.Second)
		release(t, lease)
	})
}
