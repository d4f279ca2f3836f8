package fallback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/latchkit/latchkit/core"
)

func TestF1ContentionAndCancelledCallersLeaveTheBreakerClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		held := try(b, exclusive("k"))
		want(t, held, core.Granted, false)
		for range 100 {
			want(t, try(b, exclusive("k")), core.Refused, false)
		}
		s.set(hung)
		for i := range 100 {
			ctx, cancel := context.WithCancel(context.Background())
			if i%2 == 0 {
				ctx, cancel = context.WithTimeout(ctx, time.Millisecond)
			} else {
				time.AfterFunc(time.Millisecond, cancel)
			}
			trip, stop := context.WithTimeoutCause(ctx, 2*time.Second, core.ErrTripTimeout)
			b.Do(trip, []*core.Op{{Action: core.Try, Hold: exclusive("other"), Owner: newOwner()}})
			stop()
			cancel()
		}
		if b.State() != gobreaker.StateClosed {
			t.Fatalf("the breaker is %v", b.State())
		}
		s.set(nil)
		want(t, do(b, again(core.Release, held)), core.OK, false)
	})
}

func TestF2AShortCallerDeadlineAgainstAHungStoreTripsAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.set(hung)
		b := wrap(t, s, after(3))
		locks := engine(t, b)
		began := time.Now()
		for b.State() == gobreaker.StateClosed {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			if l, err := locks.Acquire(ctx, "k"); err == nil {
				l.Release(ctx)
			}
			cancel()
			if time.Since(began) > 30*time.Second {
				t.Fatal("the breaker is closed after 30 s")
			}
		}
		lease, err := locks.Acquire(t.Context(), "k")
		if err != nil || !lease.Degraded() || lease.Fence() != 0 {
			t.Fatalf("got %v, %v", lease, err)
		}
		lease.Release(t.Context())
	})
}

func TestF3AProbeThatIsCancelledFreesItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		open(t, b, s, down)
		s.set(hung)
		time.Sleep(timeout + 10*time.Millisecond) // the probe is under way
		synctest.Wait()
		if got := b.State(); got != gobreaker.StateHalfOpen {
			t.Fatalf("the breaker is %v", got)
		}
		want(t, release(b, try(b, exclusive("k"))), core.OK, false)
		b.Close() // cancels the probe
		if got := b.State(); got != gobreaker.StateHalfOpen {
			t.Fatalf("the breaker is %v", got)
		}
		s.set(nil)
		want(t, release(b, try(b, exclusive("k"))), core.OK, false)
		time.Sleep(timeout + 10*time.Millisecond)
		synctest.Wait()
		if got := b.State(); got != gobreaker.StateClosed {
			t.Fatalf("the breaker is %v", got)
		}
	})
}

func TestF4TheBreakerClosesAndToleratesAsMuchAsBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(3))
		for range 2 {
			s.set(down)
			for i := range 2 {
				if op := try(b, exclusive("k")); !errors.Is(op.Err, core.ErrUnavailable) {
					t.Fatalf("failure %d: verdict %d, err %v", i+1, op.Verdict, op.Err)
				}
			}
			opening := try(b, exclusive("k"))
			want(t, opening, core.Granted, true) // the call that opens it is served
			want(t, release(b, opening), core.OK, false)
			s.set(nil)
			time.Sleep(timeout + 10*time.Millisecond)
			synctest.Wait()
			op := try(b, exclusive("k"))
			want(t, op, core.Granted, false)
			if op.Fence == 0 {
				t.Fatal("no fence")
			}
			want(t, release(b, op), core.OK, false)
		}
	})
}

func TestF5CallbacksMayUseTheLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		var locks *core.Locks
		var mu sync.Mutex
		var order []string
		b := wrap(t, s, WithBreaker(gobreaker.Settings{Timeout: timeout, Name: "locks",
			ReadyToTrip: func(gobreaker.Counts) bool { return true },
			OnStateChange: func(name string, from, to gobreaker.State) {
				lease, err := locks.Acquire(context.Background(), "callback", core.WithWait(time.Second))
				if err != nil {
					t.Error(err)
				}
				lease.Release(context.Background())
				mu.Lock()
				defer mu.Unlock()
				order = append(order, fmt.Sprint(name, " ", from, " ", to))
			}}),
			WithOnDegraded(func(d Degradation) {
				if d.Key == "k" {
					locks.Inspect(context.Background(), d.Key)
				}
			}))
		tracer := &breakerTracer{}
		var err error
		if locks, err = core.New(b, core.WithTracer(tracer)); err != nil {
			t.Fatal(err)
		}
		defer locks.Close(t.Context())
		s.set(down)
		lease, err := locks.Acquire(t.Context(), "k")
		if err != nil || !lease.Degraded() {
			t.Fatalf("got %v, %v", lease, err)
		}
		lease.Release(t.Context())
		s.set(nil)
		time.Sleep(timeout + 100*time.Millisecond)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if w := []string{"locks closed open", "locks open half-open", "locks half-open closed"}; !slices.Equal(order, w) {
			t.Errorf("callbacks %q, want %q", order, w)
		}
		if w := []string{" closed", "closed open", "open half-open", "half-open closed"}; !slices.Equal(tracer.got(), w) {
			t.Errorf("tracer %q, want %q", tracer.got(), w)
		}
	})
}

type breakerTracer struct {
	core.Tracer
	mu     sync.Mutex
	events []string
}

func (b *breakerTracer) Breaker(e core.BreakerEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e.From+" "+e.To)
}

func (b *breakerTracer) got() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.events)
}

func (*breakerTracer) AcquireStart(ctx context.Context, _ core.AcquireStart) context.Context {
	return ctx
}
func (*breakerTracer) AcquireEnd(context.Context, core.AcquireEnd) any { return nil }
func (*breakerTracer) WaitStart(context.Context, string)               {}
func (*breakerTracer) WaitEnd(context.Context, string)                 {}
func (*breakerTracer) HoldStart(core.HoldStart)                        {}
func (*breakerTracer) HoldEnd(core.HoldEnd)                            {}
func (*breakerTracer) ReleaseStart(ctx context.Context, _ core.ReleaseStart) context.Context {
	return ctx
}
func (*breakerTracer) ReleaseEnd(context.Context, core.ReleaseEnd) {}
func (*breakerTracer) Renewed(core.Renewal)                        {}

func TestF6TheReleaseOfAStoredLeaseGoesToTheStore(t *testing.T) {
	t.Run("reachable", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			b := wrap(t, s, after(1))
			locks := engine(t, b)
			lease := acquire(t, locks, "k")
			open(t, b, s, full)
			s.set(nil) // it would answer, and the breaker is open
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			free(t, s, "k")
		})
	})
	t.Run("hung", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			b := wrap(t, s, after(1))
			locks := engine(t, b)
			lease, other := acquire(t, locks, "k"), acquire(t, locks, "other")
			open(t, b, s, down)
			s.set(hung)
			began := time.Now()
			if err := lease.Release(t.Context()); !errors.Is(err, core.ErrUnavailable) {
				t.Fatalf("Release: %v", err)
			}
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("Release took %v", took)
			}
			trips := s.count()
			if err := other.Release(t.Context()); !errors.Is(err, core.ErrUnavailable) || s.count() != trips {
				t.Errorf("the second Release made %d trips: %v", s.count()-trips, err)
			}
			mine := acquire(t, locks, "k") // it is free here
			if !mine.Degraded() {
				t.Error("not degraded")
			}
			mine.Release(t.Context())
			s.set(nil)
			time.Sleep(timeout + 5*time.Second)
			synctest.Wait()
			free(t, s, "k")
			free(t, s, "other")
		})
	})
}

func TestF7AnAcquireAfterTheReturnWaitsForALocalHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		one, two := engine(t, b), engine(t, b)
		open(t, b, s, down)
		lease := acquire(t, one, "k")
		if !lease.Degraded() {
			t.Fatal("not degraded")
		}
		s.set(nil)
		time.Sleep(timeout + 100*time.Millisecond)
		synctest.Wait()
		if b.State() != gobreaker.StateClosed {
			t.Fatalf("the breaker is %v", b.State())
		}
		for i, locks := range []*core.Locks{one, two} {
			if _, err := locks.Acquire(t.Context(), "k"); !errors.Is(err, core.ErrNotAcquired) {
				t.Fatalf("engine %d: %v", i+1, err)
			}
		}
		got := make(chan *core.Lease)
		go func() {
			next, err := two.Acquire(context.Background(), "k", core.WithWait(core.Forever))
			if err != nil {
				t.Error(err)
			}
			got <- next
		}()
		synctest.Wait()
		began := time.Now()
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := <-got
		if waited := time.Since(began); waited > 200*time.Millisecond {
			t.Errorf("the waiter woke after %v", waited)
		}
		if next.Degraded() || next.Fence() == 0 {
			t.Errorf("degraded %v, fence %d", next.Degraded(), next.Fence())
		}
		if err := next.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestF8TheStoreFlaps has two engines of one process take the same keys while the store comes and goes in all ways.
func TestF8TheStoreFlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(2))
		engines := []*core.Locks{engine(t, b), engine(t, b)}
		var held [8]keeper
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				for n := i; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					key := n % len(held)
					lease, err := engines[i%2].Acquire(context.Background(), fmt.Sprint("k", key),
						core.WithTTL(4*time.Second), core.WithWait(time.Duration(n%3)*100*time.Millisecond))
					if err != nil {
						time.Sleep(time.Millisecond)
						continue
					}
					held[key].enter(t, lease)
					time.Sleep(time.Duration(1+n%5) * 20 * time.Millisecond)
					held[key].leave(lease)
					lease.Release(context.Background())
				}
			})
		}
		faults := []func(context.Context, *core.Op) error{nil, down, nil, hung, nil, lost, nil, full, nil}
		for range 3 {
			for i, f := range faults {
				if i == 5 {
					s.loseReplies()
				} else {
					s.set(f)
				}
				time.Sleep(1300 * time.Millisecond)
			}
		}
		s.set(nil)
		close(stop)
		wg.Wait()
		time.Sleep(10 * time.Second) // every TTL
		synctest.Wait()
		var local int
		for i := range held {
			free(t, s, fmt.Sprint("k", i))
			local += held[i].degraded
			if held[i].n == 0 {
				t.Errorf("k%d: never held", i)
			}
		}
		if local == 0 {
			t.Error("no lease was degraded")
		}
		if n := b.ledger.size(time.Now()); n != 0 {
			t.Errorf("%d entries are left in the ledger", n)
		}
	})
}

// keeper sees whether holders of a key overlap.
type keeper struct {
	mu          sync.Mutex
	holders     int
	n, degraded int
}

func (k *keeper) enter(t *testing.T, lease *core.Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.holders++
	k.n++
	if lease.Degraded() {
		k.degraded++
	}
	if k.holders > 1 {
		t.Errorf("%q has %d holders", lease.Key(), k.holders)
	}
}

func (k *keeper) leave(*core.Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.holders--
}

func TestF9NewWhileTheStoreIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.set(down)
		locks := engine(t, wrap(t, s))
		var lease *core.Lease
		for range 3 {
			var err error
			if lease, err = locks.Acquire(t.Context(), "k"); err == nil {
				break
			}
		}
		if lease == nil || !lease.Degraded() {
			t.Fatalf("no local lease: %v", lease)
		}
		lease.Release(t.Context())
	})
}

func engine(t *testing.T, b core.Backend, opts ...core.Option) *core.Locks {
	t.Helper()
	locks, err := core.New(b, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := locks.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return locks
}

func acquire(t *testing.T, locks *core.Locks, key string, opts ...core.Option) *core.Lease {
	t.Helper()
	lease, err := locks.Acquire(t.Context(), key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func release(b core.Backend, op *core.Op) *core.Op { return do(b, again(core.Release, op)) }

// free fails when key is held in the store.
func free(t *testing.T, s *store, key string) {
	t.Helper()
	info, err := s.Inspect(context.Background(), key)
	if err != nil || info.Held {
		t.Errorf("%q: %+v, %v; want it free in the store", key, info, err)
	}
}

// size counts the entries.
func (l *ledger) size(now time.Time) (n int) {
	for i := range l.shards {
		s := &l.shards[i]
		s.Lock()
		for key := range s.keys {
			if l.look(s, key, now) != nil {
				n++
			}
		}
		s.Unlock()
	}
	return n
}
