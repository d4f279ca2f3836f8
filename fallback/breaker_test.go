package fallback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/core/locktest"
	"github.com/latchkit/latchkit/internal/redistest"
)

// TestConformance: with a closed breaker the fallback is not noticed.
func TestConformance(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, store := range map[string]func(t *testing.T) core.Backend{
		"local": func(*testing.T) core.Backend { return core.Local() },
		"redis": func(t *testing.T) core.Backend { return core.Redis(redistest.Embedded(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			locktest.Run(t, func(t *testing.T) core.Backend { return Wrap(store(t)) })
		})
	}
}

// TestConformanceWhileOpen: what is promised between processes holds between the engines of one, over one Backend, when
// there is no store at all.
func TestConformanceWhileOpen(t *testing.T) {
	t.Parallel() // it mostly waits
	locktest.Run(t, func(t *testing.T) core.Backend {
		b := Wrap(core.Redis(nobody(t)), opensAtOnce())
		do(b, &core.Op{Action: core.Try, Hold: exclusive("opener"), Owner: newOwner()})
		return b
	})
}

func TestALostBatchIsOneFailure(t *testing.T) {
	s := newStore()
	s.set(down)
	b := wrap(t, s, after(2))
	for i, state := range []gobreaker.State{gobreaker.StateClosed, gobreaker.StateOpen} {
		ops := make([]*core.Op, 100)
		for j := range ops {
			ops[j] = &core.Op{Action: core.Try, Hold: exclusive(fmt.Sprint("k", j)), Owner: newOwner()}
		}
		b.Do(t.Context(), ops)
		if got := b.State(); got != state {
			t.Fatalf("after %d batches the breaker is %v", i+1, got)
		}
		for _, op := range ops {
			if state == gobreaker.StateClosed && !errors.Is(op.Err, core.ErrUnavailable) ||
				state == gobreaker.StateOpen && !op.Degraded {
				t.Fatalf("%v: verdict %d, err %v", state, op.Verdict, op.Err)
			}
		}
	}
}

// twoNodes routes keys by their first letter.
type twoNodes struct{ *store }

func (twoNodes) Route(key string) string {
	if strings.HasPrefix(key, "a") || strings.HasSuffix(key, "7") {
		return "a"
	}
	return "b"
}

func TestADeadNodeLeavesTheOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, twoNodes{s}, after(1))
		s.set(func(ctx context.Context, op *core.Op) error {
			if (twoNodes{}).Route(op.Key) == "a" {
				return down(ctx, op)
			}
			return nil
		})
		want(t, try(b, exclusive("a")), core.Granted, true)
		want(t, try(b, exclusive("b")), core.Granted, false)
		states := b.States()
		if states["a"] != gobreaker.StateOpen || states["b"] != gobreaker.StateClosed || b.State() != gobreaker.StateOpen {
			t.Fatalf("states %v, %v", states, b.State())
		}
		time.Sleep(3 * timeout) // its probes go to itself
		if got := b.States()["a"]; got != gobreaker.StateOpen {
			t.Fatalf("a is %v", got)
		}
		s.set(nil)
		time.Sleep(timeout + 100*time.Millisecond)
		synctest.Wait()
		if got := b.State(); got != gobreaker.StateClosed {
			t.Fatalf("the breakers are %v", b.States())
		}
	})
}

// moving routes every key to the node of the moment.
type moving struct {
	*store
	at atomic.Value
}

func (m *moving) Route(string) string { return m.at.Load().(string) }

func TestKeysThatMoveToAnotherNodeTakeTheirHoldsAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &moving{store: newStore()}
		m.at.Store("old")
		b := wrap(t, m, after(1))
		m.loseReplies()
		late := try(b, core.Hold{Key: "late", TTL: time.Minute}) // is in the store
		want(t, late, core.Granted, true)
		m.set(down)
		held := try(b, core.Hold{Key: "held", TTL: time.Minute})
		want(t, held, core.Granted, true)
		want(t, release(b, late), core.OK, false)
		m.at.Store("new")
		want(t, try(m.Backend, exclusive("late")), core.Refused, false)
		m.set(nil)
		time.Sleep(timeout + 100*time.Millisecond) // the old node closes as well
		synctest.Wait()
		if got := b.State(); got != gobreaker.StateClosed {
			t.Fatalf("the breakers are %v", b.States())
		}
		free(t, m.store, "late")
		want(t, try(m.Backend, exclusive("held")), core.Refused, false)
		want(t, release(b, held), core.OK, false)
		free(t, m.store, "held")
	})
}

func TestBreakersTellsWhatIsWrongWhileItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		want(t, try(b, exclusive("k")), core.Granted, false)
		if all := b.Breakers(); len(all) != 1 || all[0] != (core.Breaker{State: "closed"}) {
			t.Errorf("closed: %+v", all)
		}
		opened := time.Now()
		open(t, b, s, down)
		time.Sleep(timeout / 2)
		all := b.Breakers()
		if len(all) != 1 || all[0].State != "open" || all[0].Since.Before(opened) || time.Since(all[0].Since) < timeout/2 || all[0].Err == nil {
			t.Errorf("open: %+v", all)
		}
		s.set(nil)
		time.Sleep(2 * timeout)
		synctest.Wait()
		if all := b.Breakers(); len(all) != 1 || all[0] != (core.Breaker{State: "closed"}) {
			t.Errorf("closed again: %+v", all)
		}
	})
}

func TestNoTripWhileTheBreakerIsNotClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		open(t, b, s, down)
		trips := s.count()
		for range 100 {
			op := try(b, exclusive("k"))
			want(t, op, core.Granted, true)
			want(t, do(b, again(core.Extend, op)), core.OK, true)
			want(t, release(b, op), core.OK, false)
		}
		if got := s.count(); got != trips {
			t.Fatalf("%d trips", got-trips)
		}
		s.set(hung)
		time.Sleep(timeout + 100*time.Millisecond) // half-open: the probe hangs, and is the only one
		for range 100 {
			want(t, release(b, try(b, exclusive("k"))), core.OK, false)
		}
		if got := s.count(); got != trips+1 {
			t.Fatalf("%d trips while half-open", got-trips)
		}
		if got := b.State(); got != gobreaker.StateHalfOpen {
			t.Fatalf("the breaker is %v", got)
		}
	})
}

func TestAServerThatTakesNoLocksOpensTheBreakerThoughItFreesThem(t *testing.T) {
	s := newStore()
	b := wrap(t, s, after(3))
	held := try(b, exclusive("held"))
	s.set(full)
	for range 3 {
		if b.State() != gobreaker.StateClosed {
			break
		}
		op := try(b, exclusive("k"))
		do(b, &core.Op{Action: core.Release, Hold: op.Hold, Owner: op.Owner, Home: op.Home}) // as the engine undoes it
		want(t, do(b, again(core.Extend, held)), core.OK, b.State() != gobreaker.StateClosed)
	}
	if got := b.State(); got != gobreaker.StateOpen {
		t.Fatalf("the breaker is %v", got)
	}
}

// What the server refuses for good surfaces, and is an answer: it keeps a breaker closed, and closes one that is half-open.
func TestRefusalsForGoodSurfaceAndCloseTheBreaker(t *testing.T) {
	for _, refusal := range []error{core.ErrDenied, core.ErrConflict, core.ErrInvalidOption} {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			b := wrap(t, s, after(1))
			refuses := func(context.Context, *core.Op) error { return fmt.Errorf("%w: as it says", refusal) }
			s.set(refuses)
			for range 10 {
				if op := try(b, exclusive("k")); !errors.Is(op.Err, refusal) || op.Degraded {
					t.Fatalf("verdict %d, err %v", op.Verdict, op.Err)
				}
			}
			open(t, b, s, down)
			s.set(refuses)
			time.Sleep(timeout + 100*time.Millisecond)
			synctest.Wait()
			if got := b.State(); got != gobreaker.StateClosed {
				t.Fatalf("%v: the breaker is %v, though the server answers", refusal, got)
			}
		})
	}
}

// Only the owner releases or extends, whatever Home comes along.
func TestTheHomeOfAnotherHoldMakesNoOwner(t *testing.T) {
	s := newStore()
	b := wrap(t, s, after(1))
	stored := try(b, exclusive("stored"))
	open(t, b, s, down)
	for _, held := range []*core.Op{stored, try(b, exclusive("local"))} {
		for _, a := range []core.Action{core.Release, core.Extend} {
			theirs := again(a, held)
			theirs.Owner = newOwner()
			if do(b, theirs); theirs.Verdict == core.OK {
				t.Errorf("%v of %q by another: OK", a, held.Key)
			}
		}
		want(t, try(b, exclusive(held.Key)), core.Refused, false)
	}
}

func TestWhatIsNoSample(t *testing.T) {
	for name, err := range map[string]error{
		"closed client": fmt.Errorf("%w: the client", core.ErrClosed),
		"excluded":      fmt.Errorf("%w: %w", core.ErrUnavailable, errExcluded),
		"quarantine":    &core.QuarantineError{RetryAfter: time.Second},
		"conflict":      core.ErrConflict,
		"denied":        fmt.Errorf("%w: %w: no quorum", core.ErrDenied, core.ErrUnavailable),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore()
			b := wrap(t, s, WithBreaker(gobreaker.Settings{
				ReadyToTrip: func(gobreaker.Counts) bool { return true },
				IsExcluded:  func(err error) bool { return errors.Is(err, errExcluded) },
			}))
			s.set(func(context.Context, *core.Op) error { return err })
			if op := try(b, exclusive("k")); !errors.Is(op.Err, err) || b.State() != gobreaker.StateClosed {
				t.Fatalf("verdict %d, err %v, breaker %v", op.Verdict, op.Err, b.State())
			}
		})
	}
}

var errExcluded = errors.New("excluded")

// The deadline bounds the socket, which may report it before the context does.
func TestASocketThatReportsTheCallersDeadlineFirstIsNoSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		locks := engine(t, b)
		s.set(func(ctx context.Context, op *core.Op) error {
			if op.Action != core.Try {
				return nil // the undo
			}
			deadline, _ := ctx.Deadline()
			time.Sleep(time.Until(deadline))
			return fmt.Errorf("%w: i/o timeout", core.ErrUnavailable)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		locks.Acquire(ctx, "k")
		if got := b.State(); got != gobreaker.StateClosed {
			t.Fatalf("the breaker is %v", got)
		}
		lease := acquire(t, locks, "k") // our own limit
		defer lease.Release(t.Context())
		if got := b.State(); got != gobreaker.StateOpen {
			t.Fatalf("the breaker is %v", got)
		}
	})
}

func TestAWaiterIsServedHereWhenTheBreakerOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		locks := engine(t, b)
		other := try(s.Backend, core.Hold{Key: "k", TTL: time.Hour}) // another process
		want(t, other, core.Granted, false)
		got := make(chan *core.Lease, 1)
		go func() {
			lease, err := locks.Acquire(context.Background(), "k", core.WithWait(core.Forever))
			if err != nil {
				t.Error(err)
			}
			got <- lease
		}()
		time.Sleep(10 * time.Millisecond)
		began := time.Now()
		open(t, b, s, down)
		lease := <-got
		if took := time.Since(began); took > 50*time.Millisecond || !lease.Degraded() {
			t.Errorf("served after %v, degraded %v", took, lease.Degraded())
		}
		lease.Release(t.Context())
	})
}

// A waiter behind a local holder needs no subscription at a store that hangs, and has one when it is back.
func TestAWatchOfADeadStoreDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		open(t, b, s, down)
		synctest.Wait() // who watches already is told of the transition, and nobody is to be by what comes late
		s.set(hung)
		var mu sync.Mutex
		var woken []string
		began := time.Now()
		stop, err := b.Watch(t.Context(), "k", func(by, _ string) {
			mu.Lock()
			defer mu.Unlock()
			woken = append(woken, by)
		})
		if err != nil || time.Since(began) > 0 {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		op := try(b, exclusive("k"))
		free := again(core.Release, op)
		free.Waiter = "engine"
		do(b, free)
		mu.Lock()
		if len(woken) != 1 || woken[0] != "engine" {
			t.Errorf("woken by %q", woken)
		}
		woken = nil
		mu.Unlock()
		back(t, b, s)
		far := try(s.Backend, exclusive("k"))
		mu.Lock()
		woken = nil
		mu.Unlock()
		do(s.Backend, again(core.Release, far)) // another process
		mu.Lock()
		if len(woken) == 0 {
			t.Error("not woken by a release in the store")
		}
		mu.Unlock()
		stop()
	})
}

func TestAWatchOfAStoreThatHangsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		s.set(hung)
		began := time.Now()
		if _, err := b.Watch(t.Context(), "k", func(string, string) {}); err == nil {
			t.Error("no error: the waiter must poll")
		}
		if took := time.Since(began); took > watchLimit+time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

func TestInspectAndForceReleaseWhileOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		locks := engine(t, b, core.WithLabel("me"))
		stored := acquire(t, locks, "stored")
		open(t, b, s, down)
		local := acquire(t, locks, "local")
		for _, key := range []string{"stored", "local"} {
			info, err := locks.Inspect(t.Context(), key)
			if err != nil || !info.Held || len(info.Holders) != 1 || info.Holders[0].Label != "me" {
				t.Errorf("%q: %+v, %v", key, info, err)
			}
		}
		for _, lease := range []*core.Lease{stored, local} {
			if err := locks.ForceRelease(t.Context(), lease.Key()); err != nil {
				t.Error(err)
			}
			if err := context.Cause(lease.Context()); !errors.Is(err, core.ErrLost) {
				t.Errorf("%q: %v", lease.Key(), err)
			}
		}
		if err := locks.ForceRelease(t.Context(), "nobody's"); !errors.Is(err, core.ErrUnavailable) {
			t.Errorf("a key that others may hold: %v", err)
		}
		back(t, b, s)
		free(t, s, "stored")
	})
}

func TestInspectTellsOfLocalHoldersTheStoreDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		locks := engine(t, b)
		open(t, b, s, down)
		lease := acquire(t, locks, "k")
		want(t, try(s.Backend, core.Hold{Key: "k", TTL: time.Hour}), core.Granted, false)
		back(t, b, s)
		info, err := locks.Inspect(t.Context(), "k")
		if err != nil || len(info.Holders) != 2 {
			t.Errorf("%+v, %v", info, err)
		}
		lease.Release(t.Context())
	})
}

func TestTransitionsAreLoggedOnceEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		s := newStore()
		b := wrap(t, s, after(1), WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
		open(t, b, s, down)
		for range 100 {
			release(b, try(b, exclusive("k")))
		}
		back(t, b, s)
		if got := strings.Count(out.String(), "\n"); got != 2 {
			t.Errorf("%d lines:\n%s", got, out.String())
		}
		if !strings.Contains(out.String(), "connection refused") {
			t.Errorf("no cause:\n%s", out.String())
		}
	})
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// clocked is a backend that hears of the Tracer and gathers keys.
type clocked struct {
	core.Backend
	heard   core.Tracer
	refuses bool
}

func (c *clocked) Supports(core.Hold) error {
	if c.refuses {
		return core.ErrInvalidOption
	}
	return nil
}

func (c *clocked) Observe(t core.Tracer)       { c.heard = t }
func (c *clocked) Together(keys []string) bool { return len(keys) < 3 }

func TestTheBackendBehindIsAsked(t *testing.T) {
	inner := &clocked{Backend: core.Local()}
	b := wrap(t, inner)
	if !b.Together([]string{"a", "b"}) || b.Together([]string{"a", "b", "c"}) {
		t.Error("Together is not the inner one's")
	}
	if wrap(t, newStore()).Together([]string{"a"}) {
		t.Error("Together is true without a Gatherer")
	}
	tracer := &breakerTracer{}
	if b.Observe(tracer); inner.heard != tracer {
		t.Error("the backend behind did not hear of the Tracer")
	}
	inner.refuses = true
	if err := b.Supports(exclusive("k")); !errors.Is(err, core.ErrInvalidOption) {
		t.Errorf("Supports: %v", err)
	}
}

func TestOptionsOutOfRangeAreErrorsOfNew(t *testing.T) {
	for name, b := range map[string]core.Backend{
		"nil":    Wrap(nil),
		"policy": Wrap(core.Local(), WithPolicy(7)),
		"hold":   Wrap(core.Local(), WithMaxLocalHold(-1)),
		"drain":  Wrap(core.Local(), WithDrain(-1)),
		"inner":  Wrap(core.Redis(nil)),
	} {
		if _, err := core.New(b); !errors.Is(err, core.ErrInvalidOption) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheLedgerForgetsWhatHasRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := wrap(t, newStore())
		for i := range 10000 {
			try(b, core.Hold{Key: fmt.Sprint("k", i), TTL: time.Second}) // never released
			time.Sleep(time.Millisecond)
		}
		left := 0
		for i := range b.ledger.shards {
			left += len(b.ledger.shards[i].keys)
		}
		if left > 8000 {
			t.Errorf("%d entries for 1,000 keys that are held", left)
		}
	})
}
