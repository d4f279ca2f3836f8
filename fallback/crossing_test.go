package fallback

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/latchkit/latchkit/core"
)

// back lets the store serve again and waits until the breaker has noticed.
func back(t *testing.T, b *Backend, s *store) {
	t.Helper()
	s.set(nil)
	time.Sleep(timeout + 100*time.Millisecond)
	synctest.Wait()
	if got := b.State(); got != gobreaker.StateClosed {
		t.Fatalf("the breaker is %v", got)
	}
}

func TestRenewalCarriesALeaseOverAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		told := &degradations{}
		b := wrap(t, s, after(1), WithOnDegraded(told.add))
		locks := engine(t, b, core.WithTTL(6*time.Second))
		lease := acquire(t, locks, "k")
		fence := lease.Fence()
		open(t, b, s, down)
		time.Sleep(2500 * time.Millisecond) // one renewal
		if !lease.Degraded() || lease.Context().Err() != nil {
			t.Fatalf("degraded %v, context %v", lease.Degraded(), lease.Context().Err())
		}
		back(t, b, s)
		time.Sleep(2 * time.Second) // the key had 6 s, of which 3.5 s were left
		if lease.Degraded() || lease.Fence() != fence || lease.Context().Err() != nil {
			t.Fatalf("degraded %v, fence %d of %d, context %v", lease.Degraded(), lease.Fence(), fence, lease.Context().Err())
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		free(t, s, "k")
		if got := told.of("k"); len(got) != 1 || got[0] != CarriedOver {
			t.Errorf("told of %v", got)
		}
	})
}

func TestACarriedLeaseWhoseKeyIsGoneIsLost(t *testing.T) {
	for name, taken := range map[string]bool{"deleted": false, "taken": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				b := wrap(t, s, after(1))
				lease := acquire(t, engine(t, b, core.WithTTL(6*time.Second)), "k")
				open(t, b, s, down)
				time.Sleep(20 * time.Second) // long past the TTL
				if !lease.Degraded() || lease.Context().Err() != nil {
					t.Fatalf("degraded %v, context %v", lease.Degraded(), lease.Context().Err())
				}
				if taken {
					want(t, try(s.Backend, core.Hold{Key: "k", TTL: time.Minute}), core.Granted, false)
				}
				back(t, b, s)
				time.Sleep(3 * time.Second)
				if err := context.Cause(lease.Context()); !errors.Is(err, core.ErrLost) {
					t.Fatalf("the context's cause is %v", err)
				}
				if err := lease.Release(t.Context()); !errors.Is(err, core.ErrLost) {
					t.Fatalf("Release: %v", err)
				}
			})
		})
	}
}

func TestWithoutCarryOverTheLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1), WithoutCarryOver())
		lease := acquire(t, engine(t, b, core.WithTTL(6*time.Second)), "k")
		open(t, b, s, down)
		time.Sleep(7 * time.Second)
		if err := context.Cause(lease.Context()); !errors.Is(err, core.ErrLost) || lease.Degraded() {
			t.Fatalf("degraded %v, the context's cause is %v", lease.Degraded(), err)
		}
	})
}

func TestALocalLeaseIsWrittenToTheStoreThatIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		locks := engine(t, b, core.WithTTL(6*time.Second))
		open(t, b, s, down)
		lease := acquire(t, locks, "k")
		released := acquire(t, locks, "released")
		back(t, b, s)
		want(t, try(s.Backend, exclusive("k")), core.Refused, false) // another process
		if !lease.Degraded() || lease.Fence() != 0 {
			t.Errorf("degraded %v, fence %d: it was granted without the store", lease.Degraded(), lease.Fence())
		}
		time.Sleep(20 * time.Second) // renewed there
		want(t, try(s.Backend, exclusive("k")), core.Refused, false)
		if !lease.Degraded() {
			t.Error("not degraded any more")
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := released.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		free(t, s, "k")
		free(t, s, "released")
	})
}

func TestALocalLeaseThatIsTakenElsewhereIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		told := &degradations{}
		b := wrap(t, s, after(1), WithOnDegraded(told.add))
		open(t, b, s, down)
		lease := acquire(t, engine(t, b, core.WithTTL(6*time.Second)), "k")
		other := try(s.Backend, core.Hold{Key: "k", TTL: time.Hour})
		want(t, other, core.Granted, false)
		back(t, b, s)
		time.Sleep(20 * time.Second)
		if !lease.Degraded() || lease.Context().Err() != nil {
			t.Errorf("degraded %v, context %v; want it to live on to its end", lease.Degraded(), lease.Context().Err())
		}
		want(t, release(s.Backend, other), core.OK, false) // untouched so far
		time.Sleep(3 * time.Second)                        // a renewal writes it
		want(t, try(s.Backend, exclusive("k")), core.Refused, false)
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := told.of("k"); len(got) != 2 || got[0] != Granted || got[1] != TakenElsewhere {
			t.Errorf("told of %v", got)
		}
	})
}

// An acquire whose reply was lost has opened the breaker and is served here, and its key is in the store.
func TestAnAcquireThatLandedLateIsDeletedWhenTheStoreIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		s.loseReplies()
		op := try(b, core.Hold{Key: "k", TTL: time.Minute})
		want(t, op, core.Granted, true)
		want(t, release(b, op), core.OK, false)
		want(t, try(s.Backend, exclusive("k")), core.Refused, false)
		back(t, b, s)
		time.Sleep(time.Second)
		synctest.Wait()
		free(t, s, "k")
	})
}

// A renewal whose reply was lost has prolonged the key, and a release soon after must still delete it.
func TestARenewalThatLandedLateIsReckonedWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		op := try(b, core.Hold{Key: "k", TTL: 2 * time.Second})
		s.loseReplies()
		longer := again(core.Extend, op)
		longer.TTL = time.Minute
		want(t, do(b, longer), core.OK, true)
		time.Sleep(3 * time.Second)
		s.set(down)
		want(t, release(b, op), core.OK, false)
		want(t, try(s.Backend, exclusive("k")), core.Refused, false)
		back(t, b, s)
		time.Sleep(timeout)
		free(t, s, "k")
	})
}

func TestALeaseThatIsReleasedWhileItIsWrittenIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		open(t, b, s, down)
		op := try(b, core.Hold{Key: "k", TTL: time.Minute})
		gate := make(chan struct{})
		s.set(func(_ context.Context, op *core.Op) error {
			if op.Key == "k" && op.Action == core.Try {
				<-gate
			}
			return nil
		})
		time.Sleep(timeout + 100*time.Millisecond)
		synctest.Wait() // the promotion is under way
		want(t, release(b, op), core.OK, false)
		close(gate)
		time.Sleep(time.Second)
		synctest.Wait()
		if s.asked(core.Try, "k") == 0 {
			t.Fatal("it was not written")
		}
		free(t, s, "k")
	})
}

func TestACarriedLeaseWhoseReleaseIsLostIsDeletedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		op := try(b, core.Hold{Key: "k", TTL: time.Minute})
		open(t, b, s, down)
		want(t, do(b, again(core.Extend, op)), core.OK, true)
		back(t, b, s)
		s.set(down)
		done := again(core.Release, op)
		done.Join = op.Owner                 // it has been carried to other processes
		want(t, do(b, done), core.OK, false) // which opens the breaker
		want(t, try(s.Backend, exclusive("k")), core.Refused, false)
		back(t, b, s)
		free(t, s, "k")
		if last := s.last(core.Release, "k"); last.Join != op.Owner {
			t.Error("its other holders are forgotten")
		}
	})
}

// Those who wait for what only this process knew are woken when it ends, though the store has nothing to tell.
func TestWaitersBehindACarriedLeaseAreWoken(t *testing.T) {
	for _, end := range []core.Action{core.Release, core.Extend} {
		t.Run(end.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				b := wrap(t, s, after(1))
				op := try(b, core.Hold{Key: "k", TTL: 2 * time.Second})
				open(t, b, s, down)
				longer := again(core.Extend, op)
				longer.TTL = time.Hour
				want(t, do(b, longer), core.OK, true)
				time.Sleep(3 * time.Second)
				back(t, b, s) // where its TTL has passed
				want(t, try(b, exclusive("k")), core.Refused, false)
				woken := 0
				stop, err := b.Watch(t.Context(), "k", func(string, string) { woken++ })
				if err != nil {
					t.Fatal(err)
				}
				defer stop()
				want(t, do(b, again(end, op)), core.Absent, false)
				if woken == 0 {
					t.Error("nobody was woken")
				}
				want(t, try(b, exclusive("k")), core.Granted, false)
			})
		})
	}
}

func TestAReplayFindsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		open(t, b, s, down)
		for _, h := range []core.Hold{exclusive("k"), {Key: "permit", TTL: time.Minute, Kind: core.Limited, Limit: 1}} {
			op := try(b, h)
			want(t, op, core.Granted, true)
			want(t, do(b, &core.Op{Action: core.Try, Hold: h, Owner: op.Owner}), core.Granted, true)
			want(t, try(b, h), core.Refused, false)
		}
	})
}

// Several keys are granted as a whole or not at all, on either side.
func TestSeveralKeysAreGrantedAsAWhole(t *testing.T) {
	all := func(b core.Backend, keys ...string) []*core.Op {
		ops := make([]*core.Op, len(keys))
		for i, key := range keys {
			ops[i] = &core.Op{Action: core.Try, Hold: exclusive(key), Owner: newOwner(), All: true}
		}
		b.Do(context.Background(), ops)
		return ops
	}
	verdicts := func(t *testing.T, ops []*core.Op, v core.Verdict) {
		t.Helper()
		for _, op := range ops {
			if op.Err != nil || op.Verdict != v {
				t.Errorf("%q: verdict %d, err %v; want %d", op.Key, op.Verdict, op.Err, v)
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		told := &degradations{}
		b := wrap(t, s, after(1), WithOnDegraded(told.add))
		open(t, b, s, down)
		held := try(b, exclusive("b"))
		verdicts(t, all(b, "a", "b", "c"), core.Refused)
		for _, key := range []string{"a", "c"} {
			want(t, release(b, try(b, exclusive(key))), core.OK, false)
		}
		want(t, try(s.Backend, core.Hold{Key: "b", TTL: time.Hour}), core.Granted, false) // taken elsewhere
		back(t, b, s)
		trips := s.count()
		verdicts(t, all(b, "a", "b", "c"), core.Refused)
		if s.count() != trips {
			t.Error("a trip was made for a key that is held here")
		}
		want(t, release(b, held), core.OK, false)
		open(t, b, s, down)
		verdicts(t, all(b, "a", "b", "c"), core.Granted)
		synctest.Wait()
		if got := told.of("b"); len(got) != 3 || got[2] != Granted { // held; taken elsewhere; as a whole
			t.Errorf("told of %v", got)
		}
	})
}

// A hold that came from another process is known to the store alone.
func TestAHoldOfAnotherProcessIsNotJoinedHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		open(t, b, s, down)
		join := func(root string) *core.Op {
			op := &core.Op{Action: core.Try, Hold: exclusive("k"), Owner: newOwner()}
			op.Join = root
			return do(b, op)
		}
		if op := join(newOwner()); !errors.Is(op.Err, core.ErrUnavailable) {
			t.Errorf("verdict %d, err %v", op.Verdict, op.Err)
		}
		first := try(b, exclusive("k"))
		want(t, join(first.Owner), core.Granted, true)
		want(t, release(b, first), core.OK, false)
		want(t, try(b, exclusive("k")), core.Refused, false) // the one that joined is there still
	})
}

func TestNoFencesAndNoHandOffWhileOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		stored := try(b, exclusive("stored"))
		open(t, b, s, down)
		local := try(b, exclusive("local"))
		for _, op := range []*core.Op{stored, local} {
			more := again(core.Refill, op)
			if want(t, do(b, more), core.OK, op == local); more.Fenced != 0 || !more.Outside {
				t.Errorf("%q: %d fences, outside %v", op.Key, more.Fenced, more.Outside)
			}
		}
	})
}

// A grant of the store whose trip began before the breaker opened meets what was granted here meanwhile.
func TestAGrantOfTheStoreThatComesLateGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		gate := make(chan struct{})
		s.set(func(_ context.Context, op *core.Op) error {
			if op.Key == "k" && op.Action == core.Try {
				<-gate
			}
			return nil
		})
		slow := make(chan *core.Op)
		go func() { slow <- try(b, exclusive("k")) }()
		synctest.Wait()
		open(t, b, s, down)
		mine := try(b, exclusive("k"))
		want(t, mine, core.Granted, true)
		s.set(nil)
		close(gate)
		want(t, <-slow, core.Refused, false)
		want(t, release(b, mine), core.OK, false)
		back(t, b, s)
		free(t, s, "k")
	})
}

func TestDrainHoldsTheFirstLocalGrantsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1), WithDrain(3*time.Second))
		locks := engine(t, b)
		s.set(down)
		if _, err := locks.Acquire(t.Context(), "k"); !errors.Is(err, core.ErrUnavailable) {
			t.Fatalf("a try: %v; nobody is known to hold the key", err)
		}
		began := time.Now()
		lease := acquire(t, locks, "k", core.WithWait(time.Minute))
		if waited := time.Since(began); waited < 2900*time.Millisecond || waited > 4*time.Second || !lease.Degraded() {
			t.Fatalf("waited %v, degraded %v", waited, lease.Degraded())
		}
		lease.Release(t.Context())
	})
}

func TestMaxLocalHoldEndsALocalLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1), WithMaxLocalHold(10*time.Second))
		locks := engine(t, b, core.WithTTL(3*time.Second))
		stored := acquire(t, locks, "stored")
		open(t, b, s, down)
		began := time.Now()
		local := acquire(t, locks, "local")
		for _, lease := range []*core.Lease{local, stored} { // the latter is carried over by its next renewal
			<-lease.Context().Done()
			held := time.Since(began)
			if held < 7*time.Second || held > 11*time.Second || lease == local && held > 10*time.Second {
				t.Errorf("%q was held for %v", lease.Key(), held)
			}
			if err := context.Cause(lease.Context()); !errors.Is(err, core.ErrLost) {
				t.Errorf("%q: %v", lease.Key(), err)
			}
		}
	})
}

func TestAllowLetsEveryonePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1), WithPolicy(Allow))
		open(t, b, s, down)
		one, two := try(b, exclusive("k")), try(b, exclusive("k"))
		want(t, one, core.Granted, true)
		want(t, two, core.Granted, true)
		want(t, do(b, again(core.Extend, one)), core.OK, true)
		back(t, b, s)
		want(t, do(b, again(core.Extend, one)), core.OK, true)
		want(t, release(b, one), core.OK, false)
		want(t, release(b, two), core.OK, false)
	})
}

// In one engine as well: its gate keeps nobody out of a key that is open to everyone.
func TestAllowPassesTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1), WithPolicy(Allow))
		locks, err := core.New(b)
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close(t.Context())
		open(t, b, s, down)
		var leases []*core.Lease
		for range 3 {
			lease, err := locks.Acquire(t.Context(), "k")
			if err != nil || !lease.Degraded() || lease.Fence() != 0 {
				t.Fatalf("while open, everyone should pass: %v", err)
			}
			leases = append(leases, lease)
		}
		for _, lease := range leases {
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestACooldownHoldsOnBothSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		finish := func(op *core.Op) {
			done := again(core.Release, op)
			done.Keep = time.Minute
			want(t, do(b, done), core.OK, false)
		}
		stored := try(b, exclusive("stored"))
		finish(try(b, exclusive("before")))
		open(t, b, s, down)
		late := again(core.Release, stored)
		late.Keep = time.Minute
		if do(b, late); !errors.Is(late.Err, core.ErrUnavailable) {
			t.Errorf("a release that does not reach the store: %v", late.Err)
		}
		finish(try(b, exclusive("during")))
		for _, key := range []string{"before", "during", "stored"} {
			op := try(b, exclusive(key))
			if want(t, op, core.Refused, false); !op.Completed || op.Left == 0 {
				t.Errorf("%q while open: completed %v, left %v", key, op.Completed, op.Left)
			}
		}
		back(t, b, s)
		tries := s.asked(core.Try, "during") + s.asked(core.Try, "stored")
		for _, key := range []string{"before", "during", "stored"} {
			if op := try(b, exclusive(key)); op.Verdict != core.Refused || !op.Completed {
				t.Errorf("%q when back: verdict %d, completed %v", key, op.Verdict, op.Completed)
			}
		}
		if s.asked(core.Try, "during")+s.asked(core.Try, "stored") != tries {
			t.Error("a trip was made for what is known here")
		}
	})
}

func TestSharedAndLimitedHoldsCountBothSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		permit := core.Hold{Key: "permits", TTL: time.Minute, Kind: core.Limited, Limit: 3}
		reader := core.Hold{Key: "book", TTL: time.Minute, Kind: core.Shared}
		stored := try(b, permit)
		want(t, stored, core.Granted, false)
		want(t, try(b, reader), core.Granted, false)
		open(t, b, s, down)
		local := try(b, permit)
		want(t, local, core.Granted, true)
		want(t, try(b, permit), core.Granted, true)
		want(t, try(b, permit), core.Refused, false)
		want(t, try(b, reader), core.Granted, true)
		want(t, try(b, core.Hold{Key: "book", TTL: time.Minute}), core.Refused, false)
		back(t, b, s)
		want(t, try(b, permit), core.Refused, false)
		want(t, release(b, local), core.OK, false)
		synctest.Wait()
		want(t, try(b, permit), core.Granted, false)
		want(t, try(b, core.Hold{Key: "book", TTL: time.Minute}), core.Refused, false)
	})
}

// Readers that keep coming do not keep the writer of another engine out.
func TestAWaitingWriterStopsNewReadersWhileOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		open(t, b, s, down)
		reader := core.Hold{Key: "k", TTL: time.Minute, Kind: core.Shared}
		first := try(b, reader)
		writer := do(b, &core.Op{Action: core.Try, Hold: exclusive("k"), Owner: newOwner(), Waiter: "writer"})
		want(t, writer, core.Refused, false)
		want(t, try(b, reader), core.Refused, false)
		do(b, &core.Op{Action: core.Leave, Hold: exclusive("k"), Waiter: "writer"})
		want(t, try(b, reader), core.Granted, true)
		want(t, release(b, first), core.OK, false)
	})
}

func TestASlowCallbackMissesDegradations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		gate := make(chan struct{})
		told := &degradations{}
		b := wrap(t, s, after(1), WithOnDegraded(func(d Degradation) {
			<-gate
			told.add(d)
		}))
		open(t, b, s, down)
		for range 2 * maxDegradations {
			want(t, release(b, try(b, exclusive("k"))), core.OK, false)
		}
		close(gate)
		synctest.Wait()
		want(t, release(b, try(b, exclusive("last"))), core.OK, false)
		synctest.Wait()
		told.mu.Lock()
		defer told.mu.Unlock()
		missed := 0
		for _, d := range told.all {
			missed += d.Missed
		}
		if got := len(told.all) + missed; got != 2*maxDegradations+2 || missed == 0 {
			t.Errorf("told of %d, %d missed", len(told.all), missed)
		}
	})
}

// degradations collects what WithOnDegraded tells.
type degradations struct {
	mu  sync.Mutex
	all []Degradation
}

func (d *degradations) add(e Degradation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, e)
}

func (d *degradations) of(key string) (what []Crossing) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.all {
		if e.Key == key {
			what = append(what, e.What)
		}
	}
	return what
}

// A store that hangs opens the breaker by the renewals of one quiet lease alone, before that lease has ended.
func TestALeaseOutlivesAStoreThatHangs(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 2 * time.Second, 6 * time.Second, 10 * time.Second, 30 * time.Second} {
		t.Run(ttl.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				lease := acquire(t, engine(t, wrap(t, s), core.WithTTL(ttl)), "k")
				s.set(hung)
				time.Sleep(3 * ttl)
				if err := context.Cause(lease.Context()); err != nil || !lease.Degraded() || lease.Remaining() == 0 {
					t.Errorf("degraded %v, %v left: %v", lease.Degraded(), lease.Remaining(), err)
				}
				s.set(nil)
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
