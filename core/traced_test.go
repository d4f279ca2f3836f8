package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkit/latchkit/core"
)

// journal is a Tracer that writes down what it is told.
type journal struct {
	mu      sync.Mutex
	lines   []string
	held    int
	lowest  int
	waiting int
	last    core.AcquireEnd
}

type tripMark struct{}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

func (j *journal) sort() {
	j.mu.Lock()
	defer j.mu.Unlock()
	slices.Sort(j.lines)
}

func (j *journal) AcquireStart(ctx context.Context, e core.AcquireStart) context.Context {
	j.add("acquire %s", e.Key)
	return context.WithValue(ctx, tripMark{}, true)
}

func (j *journal) AcquireEnd(ctx context.Context, e core.AcquireEnd) any {
	if ctx.Value(tripMark{}) == nil {
		j.add("foreign context")
	}
	j.mu.Lock()
	j.last = e
	j.mu.Unlock()
	j.add("%s %s", e.Outcome, e.Key)
	return "mark of " + e.Key
}

func (j *journal) WaitStart(context.Context, string) { j.count(&j.waiting, 1) }
func (j *journal) WaitEnd(context.Context, string)   { j.count(&j.waiting, -1) }

func (j *journal) count(n *int, by int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	*n += by
	j.lowest = min(j.lowest, j.held, j.waiting)
}

func (j *journal) HoldStart(e core.HoldStart) {
	j.count(&j.held, 1)
	j.add("hold %s", e.Key)
}

func (j *journal) HoldEnd(e core.HoldEnd) {
	j.count(&j.held, -1)
	j.add("end %s %v %s %v", e.Key, errors.Is(e.Cause, core.ErrLost), e.Reason, e.Mark)
}

func (j *journal) ReleaseStart(ctx context.Context, e core.ReleaseStart) context.Context {
	j.add("release %s %v", e.Key, e.Mark)
	return ctx
}
func (j *journal) ReleaseEnd(_ context.Context, e core.ReleaseEnd) {
	j.add("released %s %v", e.Key, e.HandOff)
}
func (j *journal) Renewed(e core.Renewal) {
	j.add("renewed %s %v %v", e.Key, e.Err == nil, e.Slack > 0)
}

func TestTracerIsToldInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		locks := newLocks(t, core.Local(), core.WithTracer(j), core.WithTTL(3*time.Second))
		check := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			if got := j.take(); !slices.Equal(got, want) {
				t.Errorf("%s:\n got %q\nwant %q", what, got, want)
			}
		}
		lease := acquire(t, locks, "k")
		if lease.Context().Value(tripMark{}) != nil {
			t.Error("the Tracer's context got into the lease's")
		}
		check("acquire", "acquire k", "acquired k", "hold k")
		inner, err := locks.Acquire(lease.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		release(t, inner)
		check("re-entry", "acquire k", "acquired k")
		locks.Acquire(t.Context(), "k")
		check("contended", "acquire k", "contended k")
		if j.last.HolderMark != "mark of k" {
			t.Errorf("the holder's mark is %v", j.last.HolderMark)
		}
		locks.Acquire(t.Context(), "k", core.WithWait(100*time.Millisecond))
		check("wait spent", "acquire k", "timeout k")
		if j.last.InGate != 100*time.Millisecond || j.last.Waited != 100*time.Millisecond || j.last.Attempts != 0 {
			t.Errorf("the wait was %+v", j.last)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		locks.Acquire(ctx, "k", core.WithWait(core.Forever))
		check("cancelled", "acquire k", "canceled k")
		go func() { acquire(t, locks, "k", core.WithWait(core.Forever)) }()
		synctest.Wait()
		j.take()
		release(t, lease)
		synctest.Wait()
		j.sort() // two goroutines tell of it
		check("hand-off", "acquired k", "end k false  mark of k", "hold k", "release k mark of k", "released k true")
		time.Sleep(time.Second)
		check("renewal", "renewed k true true")
		locks.ForceRelease(t.Context(), "k")
		check("forced", "end k true forced mark of k")
		lost := acquire(t, locks, "l", core.WithoutRenewal())
		time.Sleep(4 * time.Second)
		lost.Release(t.Context())
		lost.Release(t.Context())
		check("lost", "acquire l", "acquired l", "hold l", "end l true expired mark of l",
			"release l mark of l", "released l false")
		if j.held != 0 || j.waiting != 0 || j.lowest < 0 {
			t.Errorf("held %d, waiting %d, lowest %d; want 0 and never below", j.held, j.waiting, j.lowest)
		}
	})
}

// T3 and T5: a panic, a double release and losses leave held at 0.
func TestHoldsAreCountedInPairs(t *testing.T) {
	j := &journal{}
	locks := newLocks(t, core.Local(), core.WithTracer(j), core.WithTTL(20*time.Millisecond), core.WithoutRenewal())
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			defer func() { _ = recover() }()
			core.Do(t.Context(), locks, fmt.Sprint("k", i%20), func(ctx context.Context) error {
				lease, _ := core.FromContext(ctx)
				switch i % 4 {
				case 0:
					panic("in mid-lock")
				case 1:
					lease.Release(ctx)
				case 2:
					<-ctx.Done()
				}
				return nil
			}, core.WithWait(5*time.Second))
		})
	}
	wg.Wait()
	if j.held != 0 || j.waiting != 0 || j.lowest < 0 {
		t.Errorf("held %d, waiting %d, lowest %d; want 0 and never below", j.held, j.waiting, j.lowest)
	}
}

// slowEnd is a Tracer that takes its time over the end of a hold.
type slowEnd struct{ journal }

func (*slowEnd) HoldEnd(core.HoldEnd) { time.Sleep(time.Second) }

// The store has forgotten a lock. Who waits for it in the process comes in when the holder has been told, not before.
func TestAHolderIsToldBeforeTheNextComesIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := newLocks(t, core.Local(), core.WithTracer(&slowEnd{}), core.WithTTL(3*time.Second))
		first := acquire(t, locks, "k")
		told := make(chan bool)
		go func() {
			next := acquire(t, locks, "k", core.WithWait(core.Forever))
			told <- first.Context().Err() != nil
			release(t, next)
		}()
		synctest.Wait()
		if err := locks.ForceRelease(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if !<-told {
			t.Error("the next holder was let in while the first had not been told")
		}
		synctest.Wait()
		time.Sleep(2 * time.Second)
	})
}

// A call that finds the lease lost while whoever found it first still tells the Tracer ends the lease's context as well.
func TestWhoHearsOfALossFindsTheContextEnded(t *testing.T) {
	for name, call := range map[string]func(*core.Lease) error{
		"Release": func(l *core.Lease) error { return l.Release(context.Background()) },
		"Extend":  func(l *core.Lease) error { return l.Extend(context.Background(), time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks := newLocks(t, newScripted(), core.WithTracer(&slowEnd{}))
				lease := acquire(t, locks, "k", core.WithTTL(time.Second), core.WithoutRenewal())
				time.Sleep(1500 * time.Millisecond) // the watchdog tells of it since the first
				wantErr(t, call(lease), core.ErrLost)
				wantErr(t, context.Cause(lease.Context()), core.ErrLost)
				if n := locks.Gates(); n != 0 {
					t.Error("the key is kept track of still")
				}
				time.Sleep(time.Second) // until it is told
			})
		})
	}
}
