package core_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkit/latchkit/core"
)

// L11: one of 500 renewals fails; the other 499 are renewed, and the one is tried again inside its validity.
func TestRenewalFailsForOneAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		locks := newLocks(t, b, core.WithTTL(3*time.Second))
		var leases []*core.Lease
		for i := range 500 {
			leases = append(leases, acquire(t, locks, fmt.Sprint("k", i)))
		}
		failed := 0
		b.set(func(_ context.Context, op *core.Op) bool {
			if op.Action == core.Extend && op.Key == "k7" && failed < 3 {
				failed++
				down(op)
				return true
			}
			return false
		}, nil)
		time.Sleep(10 * time.Second) // of the bubble's own clock
		for _, lease := range leases {
			if err := context.Cause(lease.Context()); err != nil || lease.Remaining() < time.Second {
				t.Fatalf("%q: %v, %v left", lease.Key(), err, lease.Remaining())
			}
		}
		if failed != 3 {
			t.Errorf("the renewal failed %d times, want 3", failed)
		}
		if n := b.count(core.Extend); n < 9*500 || n > 11*500 {
			t.Errorf("%d renewals of 500 leases in 10 s at a TTL of 3 s, want 10 each", n)
		}
	})
}

func TestRenewalsGatherInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		locks := newLocks(t, b, core.WithTTL(30*time.Second))
		for i := range 500 {
			acquire(t, locks, fmt.Sprint("k", i))
		}
		trips := b.count(0)
		time.Sleep(11 * time.Second)
		if n := b.count(0) - trips; n > 4 {
			t.Errorf("500 renewals took %d trips, want a few", n)
		}
		if n := b.count(core.Extend); n != 500 {
			t.Errorf("%d renewals, want 500", n)
		}
	})
}

// L12: an error, then success: nothing is lost, and the next lease of the key is renewed as well.
func TestRenewalRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		locks := newLocks(t, b, core.WithTTL(3*time.Second))
		once := sync.OnceFunc(func() {})
		failures := 0
		b.set(func(_ context.Context, op *core.Op) bool {
			once()
			if op.Action == core.Extend && failures == 0 {
				failures++
				down(op)
				return true
			}
			return false
		}, nil)
		for range 2 {
			lease := acquire(t, locks, "k")
			time.Sleep(20 * time.Second)
			if lease.Remaining() < 1900*time.Millisecond {
				t.Fatalf("%v left of 3 s, %v", lease.Remaining(), context.Cause(lease.Context()))
			}
			release(t, lease)
		}
	})
}

// A backend that answers no renewal cannot hold a lease beyond its deadline.
func TestDeadlineEndsALeaseWhateverTheBackendDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		locks := newLocks(t, b, core.WithTTL(3*time.Second))
		lease := acquire(t, locks, "k")
		b.set(func(ctx context.Context, op *core.Op) bool {
			if op.Action == core.Extend {
				<-ctx.Done() // hangs
				down(op)
				return true
			}
			return false
		}, nil)
		began := time.Now()
		<-lease.Context().Done()
		wantErr(t, context.Cause(lease.Context()), core.ErrLost)
		if took := time.Since(began); took > 3*time.Second || took < 2900*time.Millisecond {
			t.Errorf("the lease ended after %v, want 3 s less drift", took)
		}
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
		time.Sleep(time.Second) // until the hung renewals have come to their limit
	})
}

// A renewal that is answered after the deadline, or after a release, revives nothing.
func TestLateRenewalRevivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		locks := newLocks(t, b, core.WithTTL(time.Second))
		answer := make(chan struct{})
		b.set(func(_ context.Context, op *core.Op) bool {
			if op.Action == core.Extend {
				<-answer
				op.Verdict = core.OK
				return true
			}
			return false
		}, nil)
		lost, released := acquire(t, locks, "lost"), acquire(t, locks, "released")
		time.Sleep(500 * time.Millisecond)
		release(t, released)
		time.Sleep(time.Second)
		close(answer)
		synctest.Wait()
		wantErr(t, context.Cause(lost.Context()), core.ErrLost)
		wantErr(t, lost.Release(t.Context()), core.ErrLost)
		wantErr(t, released.Release(t.Context()), core.ErrNotHeld)
		b.set(nil, nil)
		time.Sleep(10 * time.Second)
		n := b.count(core.Extend)
		time.Sleep(10 * time.Second)
		if more := b.count(core.Extend) - n; more != 0 {
			t.Errorf("%d renewals of leases that have ended", more)
		}
	})
}

// A release that is under way for longer than it takes to the next renewal.
func TestNothingIsRenewedOnceItIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		locks := newLocks(t, b, core.WithTTL(3*time.Second))
		b.set(func(_ context.Context, op *core.Op) bool {
			if op.Action == core.Release {
				time.Sleep(1500 * time.Millisecond)
			}
			return false
		}, nil)
		release(t, acquire(t, locks, "k"))
		time.Sleep(10 * time.Second)
		if n := b.count(core.Extend); n != 0 {
			t.Errorf("%d renewals after the release began", n)
		}
	})
}

func TestRenewalThatFindsAnotherOwnerIsALossAtOnce(t *testing.T) {
	for verdict, word := range map[core.Verdict]string{core.Absent: "deleted", core.Foreign: "held by another"} {
		synctest.Test(t, func(t *testing.T) {
			b := newScripted()
			locks := newLocks(t, b, core.WithTTL(3*time.Second))
			lease := acquire(t, locks, "k")
			b.set(func(_ context.Context, op *core.Op) bool {
				op.Verdict = verdict
				return op.Action == core.Extend
			}, nil)
			began := time.Now()
			<-lease.Context().Done()
			wantErr(t, context.Cause(lease.Context()), core.ErrLost)
			if took := time.Since(began); took > 1100*time.Millisecond {
				t.Errorf("the loss (%s) was told after %v, want a third of 3 s", word, took)
			}
			n := b.count(core.Extend)
			time.Sleep(10 * time.Second)
			if b.count(core.Extend) != n {
				t.Error("a lost lease is renewed")
			}
		})
	}
}

func TestMaxHoldEndsTheContextAndRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		locks := newLocks(t, b, core.WithTTL(3*time.Second))
		lease := acquire(t, locks, "k", core.WithMaxHold(5500*time.Millisecond))
		<-lease.Context().Done()
		wantErr(t, context.Cause(lease.Context()), core.ErrMaxHold)
		_, err := locks.Acquire(t.Context(), "k")
		wantErr(t, err, core.ErrNotAcquired)
		n := b.count(core.Extend)
		next, err := locks.Acquire(t.Context(), "k", core.WithWait(10*time.Second))
		if err != nil {
			t.Fatalf("the key is not free after its TTL: %v", err)
		}
		if b.count(core.Extend) > n {
			t.Error("renewed after its maximum time")
		}
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
		release(t, next)
	})
}

// L19: a nested acquire without renewal inside a renewed one.
func TestNestedWithoutRenewalKeepsTheOuterWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := newLocks(t, core.Local(), core.WithTTL(3*time.Second))
		outer := acquire(t, locks, "k")
		inner, err := locks.Acquire(outer.Context(), "k", core.WithoutRenewal(), core.WithMaxHold(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		wantErr(t, context.Cause(inner.Context()), core.ErrMaxHold)
		release(t, inner)
		time.Sleep(20 * time.Second)
		if outer.Remaining() < 1900*time.Millisecond {
			t.Errorf("%v left, %v", outer.Remaining(), context.Cause(outer.Context()))
		}
		release(t, outer)
	})
}
