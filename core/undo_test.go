package core_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkit/latchkit/core"
)

// loseFirst has the reply of the first operation with action get lost after it was carried out.
func loseFirst(action core.Action, then func()) func(*core.Op) {
	lost := false
	return func(op *core.Op) {
		if op.Action == action && !lost {
			lost = true
			then()
			down(op)
		}
	}
}

// A release whose answer was lost has worked when the next attempt finds the key free, kept, or another's.
func TestReleaseWhoseAnswerIsLost(t *testing.T) {
	for _, keep := range []time.Duration{0, time.Minute} {
		for _, taken := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				b := newScripted()
				locks, others := newLocks(t, b), newLocks(t, b)
				lease := acquire(t, locks, "k")
				b.set(nil, loseFirst(core.Release, func() {
					if taken && keep == 0 {
						acquire(t, others, "k")
					}
				}))
				if err := lease.ReleaseAfter(t.Context(), keep); err != nil {
					t.Errorf("keep %v, taken %v: %v", keep, taken, err)
				}
				_, err := locks.Acquire(t.Context(), "k")
				if taken || keep > 0 {
					wantErr(t, err, core.ErrNotAcquired)
				} else if err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A Try whose answer was lost, and which was carried out, keeps nobody of its own process waiting: its undo wakes them.
func TestUndoWakesOwnWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := whole{newScripted()}
		locks := newLocks(t, b, core.WithTTL(time.Hour))
		lease := acquire(t, locks, "k")
		undo := make(chan struct{})
		b.set(func(_ context.Context, op *core.Op) bool {
			if op.Action != core.Release {
				return false
			}
			select {
			case <-undo:
				return false
			default:
				down(op)
				return true
			}
		}, nil)
		wantErr(t, lease.Release(t.Context()), core.ErrUnavailable)
		got := make(chan *core.Lease)
		go func() { got <- acquire(t, locks, "k", core.WithWait(time.Minute)) }()
		time.Sleep(100 * time.Millisecond)
		undone := make(chan time.Time, 1)
		b.set(nil, func(op *core.Op) { // the next attempt of the undo goes through
			if op.Action == core.Release {
				undone <- time.Now()
			}
		})
		next := <-got
		b.set(nil, nil)
		if took := time.Since(<-undone); took > 100*time.Millisecond {
			t.Errorf("the waiter came %v after the undo", took)
		}
		release(t, next)
	})
}

// An acquire in doubt is undone again and again until its TTL has passed, for it may land after the first undo; one that
// was found is undone once.
func TestLateCommandIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		locks := newLocks(t, b, core.WithTTL(30*time.Second))
		var late *core.Op
		b.set(func(ctx context.Context, op *core.Op) bool {
			if op.Action != core.Try {
				return false
			}
			again := *op
			late = &again
			hang(ctx, op)
			return true
		}, nil)
		_, err := locks.Acquire(t.Context(), "k")
		wantErr(t, err, core.ErrUnavailable)
		b.set(nil, nil)
		time.Sleep(9 * time.Second)
		b.Do(t.Context(), []*core.Op{late}) // lands now
		if !b.held(t, "k") {
			t.Fatal("the late command did not take the key")
		}
		time.Sleep(2100 * time.Millisecond)
		if b.held(t, "k") {
			t.Error("the late command is not undone within the pause of 2 s")
		}
		n := b.count(core.Release)
		time.Sleep(time.Minute)
		if more := b.count(core.Release) - n; more != 0 {
			t.Errorf("%d more undos of what was undone", more)
		}
	})
}
