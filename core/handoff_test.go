package core_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkit/latchkit/core"
)

// A tenure goes to the next of its process without a trip when that asks for the same, enough is left of it, and it has
// not lasted too long.
func TestWhatIsHandedOn(t *testing.T) {
	type options = []core.Option
	for name, c := range map[string]struct {
		first, next options
		hold        time.Duration
		handed      bool
	}{
		"the same":          {nil, nil, 100 * time.Millisecond, true},
		"other bounds":      {nil, options{core.WithMaxHold(time.Second)}, 0, true},
		"another TTL":       {nil, options{core.WithTTL(29 * time.Second)}, 0, false},
		"no renewal":        {nil, options{core.WithoutRenewal()}, 0, false},
		"another label":     {nil, options{core.WithLabel("another")}, 0, false},
		"less than half":    {options{core.WithTTL(time.Second), core.WithoutRenewal()}, options{core.WithTTL(time.Second), core.WithoutRenewal()}, 600 * time.Millisecond, false},
		"more than half":    {options{core.WithTTL(time.Second), core.WithoutRenewal()}, options{core.WithTTL(time.Second), core.WithoutRenewal()}, 400 * time.Millisecond, true},
		"a tenure of 1.1 s": {nil, nil, 1100 * time.Millisecond, false},
		"after MaxHold":     {options{core.WithMaxHold(10 * time.Millisecond)}, nil, 50 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks := newLocks(t, whole{newScripted()})
				first := acquire(t, locks, "k", c.first...)
				got := make(chan *core.Lease)
				go func() { got <- acquire(t, locks, "k", append(c.next, core.WithWait(time.Minute))...) }()
				time.Sleep(c.hold)
				synctest.Wait()
				deadline := first.Deadline()
				release(t, first)
				next := <-got
				if handed := next.Owner() == first.Owner(); handed != c.handed {
					t.Errorf("handed on: %v", handed)
				}
				if c.handed && !next.Deadline().Equal(deadline) {
					t.Error("the deadline is not the tenure's")
				}
				if next.Fence() <= first.Fence() {
					t.Errorf("fence %d after %d", next.Fence(), first.Fence())
				}
				release(t, next)
			})
		})
	}
}

// Once somebody outside is known to wait, the chain ends within 2 ms and the current hold, and the next here lets it in.
func TestChainEndsForOutsiders(t *testing.T) {
	for name, late := range map[string]bool{"who came first": false, "who came in mid-chain": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := whole{newScripted()}
				inside, outside := newLocks(t, b), newLocks(t, b)
				first := acquire(t, inside, "k")
				order := make(chan string, 20)
				wait := func(locks *core.Locks, who string) {
					lease := acquire(t, locks, "k", core.WithWait(time.Minute))
					order <- who
					time.Sleep(5 * time.Millisecond)
					lease.Release(context.Background())
				}
				if !late {
					go wait(outside, "outside")
					synctest.Wait()
				}
				for range 10 {
					go wait(inside, "inside")
					synctest.Wait()
				}
				release(t, first)
				if late {
					time.Sleep(7 * time.Millisecond)
					go wait(outside, "outside")
				}
				place := 0
				for i := range 11 {
					if <-order == "outside" {
						place = i
					}
				}
				if place > 5 {
					t.Errorf("%d inside were served before the one outside", place)
				}
			})
		})
	}
}

// The time of a lease is counted from before its attempt was sent, and less what clocks may drift; its renewals likewise.
func TestTimeIsCountedFromBeforeSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		locks := newLocks(t, b, core.WithTTL(30*time.Second))
		var renewed []time.Duration
		began := time.Now()
		b.set(func(_ context.Context, op *core.Op) bool {
			if op.Action == core.Extend {
				renewed = append(renewed, time.Since(began))
			}
			return false
		}, func(*core.Op) { time.Sleep(500 * time.Millisecond) })
		lease := acquire(t, locks, "k")
		if left := lease.Deadline().Sub(began); left != 30*time.Second-300*time.Millisecond-2*time.Millisecond {
			t.Errorf("a lease of 30s ends %v after it was asked for", left)
		}
		time.Sleep(25 * time.Second)
		synctest.Wait()
		if len(renewed) != 2 || renewed[0] != 10*time.Second || renewed[1] != 20*time.Second {
			t.Errorf("renewed after %v, want each third of the TTL", renewed)
		}
		release(t, lease)
	})
}

// A grant that comes when the lease's time is over is none.
func TestGrantThatComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		locks := newLocks(t, b)
		b.set(nil, func(op *core.Op) {
			if op.Action == core.Try {
				time.Sleep(150 * time.Millisecond)
			}
		})
		_, err := locks.Acquire(t.Context(), "k", core.WithTTL(100*time.Millisecond))
		wantErr(t, err, core.ErrUnavailable)
	})
}

// What a lease's own clock leaves of the TTL in the store is given back.
func TestExpiredKeyIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		locks := newLocks(t, b, core.WithTTL(time.Hour), core.WithoutRenewal())
		lease := acquire(t, locks, "k")
		<-lease.Context().Done()
		time.Sleep(time.Second)
		if b.held(t, "k") {
			t.Error("the key is kept until its TTL has passed in the store too")
		}
	})
}

// A holder that has died is followed when its TTL has passed, which nobody tells.
func TestDeadHolderIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := whole{newScripted()}
		locks := newLocks(t, b)
		b.Do(t.Context(), []*core.Op{{Action: core.Try, Hold: core.Hold{Key: "k", TTL: 300 * time.Millisecond},
			Owner: "0123456789abcdef0123456789abcdef", Fences: 1}})
		began := time.Now()
		release(t, acquire(t, locks, "k", core.WithWait(time.Minute)))
		if took := time.Since(began); took > 310*time.Millisecond {
			t.Errorf("followed after %v", took)
		}
	})
}

// The deadline of the caller is that of the trip, if it is the earlier one.
func TestTripHasTheCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		locks := newLocks(t, b)
		began := time.Now()
		for limit, want := range map[time.Duration]time.Duration{300 * time.Millisecond: 300 * time.Millisecond, time.Hour: 2 * time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			b.set(func(ctx context.Context, op *core.Op) bool {
				if deadline, ok := ctx.Deadline(); op.Action == core.Try && (!ok || deadline.Sub(began) != want) {
					t.Errorf("under a deadline of %v the trip has %v", limit, deadline.Sub(began))
				}
				return false
			}, nil)
			lease, err := locks.Acquire(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			release(t, lease)
			cancel()
		}
	})
}

// A caller that leaves while its batch is on its way leaves nothing behind.
func TestCancelWhileTheBatchIsOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		locks := newLocks(t, b, core.WithTTL(time.Hour))
		b.set(func(context.Context, *core.Op) bool { time.Sleep(100 * time.Millisecond); return false }, nil)
		for _, key := range []string{"lone 1", "lone 2"} {
			go locks.Acquire(t.Context(), key)
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(150*time.Millisecond, cancel)
		_, err := locks.Acquire(ctx, "k")
		wantErr(t, err, context.Canceled)
		time.Sleep(time.Second)
		if b.held(t, "k") {
			t.Error("what the batch took is kept")
		}
	})
}

// A leader that knows of a holder, and whose context ends in mid-trip, says both.
func TestCancelInTheMidstOfAPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		holder, locks := newLocks(t, b), newLocks(t, b)
		acquire(t, holder, "k")
		tries := 0
		b.set(func(ctx context.Context, op *core.Op) bool {
			if op.Action == core.Try {
				if tries++; tries > 1 {
					hang(ctx, op)
					return true
				}
			}
			return false
		}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := locks.Acquire(ctx, "k", core.WithWait(core.Forever))
		wantErr(t, err, core.ErrNotAcquired, context.DeadlineExceeded)
		if tries < 2 {
			t.Error("the wait did not end in a trip")
		}
		b.set(nil, nil)
	})
}

// Another key under the context of a lease is another lock.
func TestAnotherKeyIsNoReentry(t *testing.T) {
	locks := newLocks(t, core.Local())
	outer := acquire(t, locks, "k1")
	inner, err := locks.Acquire(outer.Context(), "k2")
	if err != nil {
		t.Fatal(err)
	}
	_, err = locks.Acquire(t.Context(), "k2")
	wantErr(t, err, core.ErrNotAcquired)
	release(t, outer)
	wantErr(t, context.Cause(inner.Context()), core.ErrReleased) // of the outer, whose context is its parent
	_, err = locks.Acquire(t.Context(), "k2")
	wantErr(t, err, core.ErrNotAcquired)
	release(t, inner)
}

// A lease's context tells the first of what ended it, whenever it is asked for.
func TestFirstCauseStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := newLocks(t, core.Local())
		lease := acquire(t, locks, "k", core.WithMaxHold(time.Second))
		time.Sleep(2 * time.Second)
		release(t, lease)
		wantErr(t, context.Cause(lease.Context()), core.ErrMaxHold)
	})
}

// counting counts the subscriptions that stand.
type counting struct {
	whole
	stand *atomic.Int64
}

func (c counting) Watch(ctx context.Context, key string, wake func(by, next string)) (func(), error) {
	stop, err := c.whole.Watch(ctx, key, wake)
	c.stand.Add(1)
	return func() { stop(); c.stand.Add(-1) }, err
}

// One subscription serves all who wait for a key, and ends with the last.
func TestOneSubscriptionForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stand atomic.Int64
		b := counting{whole{newScripted()}, &stand}
		holder, locks := newLocks(t, b), newLocks(t, b)
		lease := acquire(t, holder, "k")
		for range 10 {
			go locks.Acquire(t.Context(), "k", core.WithWait(time.Second))
		}
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if n := stand.Load(); n != 1 {
			t.Errorf("%d subscriptions of 10 waiters", n)
		}
		time.Sleep(time.Second)
		if n := stand.Load(); n != 0 {
			t.Errorf("%d subscriptions of nobody", n)
		}
		release(t, lease)
	})
}

// A waiter that was served while its arrival was on its way leaves no place behind, which would be in others' way.
func TestServedWhileItArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := whole{newScripted()}
		elsewhere, locks := newLocks(t, b), newLocks(t, b)
		arrive := make(chan struct{})
		b.set(func(_ context.Context, op *core.Op) bool {
			if op.Action == core.Arrive {
				<-arrive
			}
			return false
		}, nil)
		first := acquire(t, elsewhere, "k")
		got := make(chan *core.Lease)
		for range 2 { // the one that leads needs no arrival
			go func() { got <- acquire(t, locks, "k", core.WithFair(), core.WithWait(time.Minute)) }()
			synctest.Wait()
		}
		release(t, first)
		release(t, <-got)
		release(t, <-got)
		close(arrive)
		synctest.Wait()
		began := time.Now()
		release(t, acquire(t, elsewhere, "k", core.WithFair(), core.WithWait(time.Minute)))
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("the next waited for %v behind a place that nobody has", took)
		}
	})
}

// A waiter whose engine says that it waits, when it has been served and does not know it yet, leaves nothing behind: no
// place in the others' way, and no writer that keeps readers out.
func TestServedBetweenTwoBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := whole{newScripted()}
		elsewhere, locks := newLocks(t, b), newLocks(t, b)
		first := acquire(t, elsewhere, "k")
		got := make(chan *core.Lease)
		go func() { got <- acquire(t, locks, "k", core.WithFair(), core.WithWait(time.Minute)) }()
		synctest.Wait()
		b.set(nil, func(op *core.Op) {
			if op.Action == core.Try && op.Verdict == core.Granted {
				time.Sleep(core.Heartbeat)
			}
		})
		release(t, first)
		lease := <-got
		b.set(nil, nil)
		release(t, lease)
		for kind, opt := range map[string]core.Option{"reader": core.WithShared(), "fair one": core.WithFair()} {
			began := time.Now()
			release(t, acquire(t, elsewhere, "k", opt, core.WithWait(time.Minute)))
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("a %s waited for %v behind one who has gone", kind, took)
			}
		}
	})
}
