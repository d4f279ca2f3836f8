package core_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkit/latchkit/core"
)

// panicky is a Tracer that panics once, in the method named.
type panicky struct {
	journal
	in    string
	armed atomic.Bool
}

func (p *panicky) maybe(method string) {
	if method == p.in && p.armed.CompareAndSwap(true, false) {
		panic("in " + method)
	}
}

func (p *panicky) AcquireStart(ctx context.Context, e core.AcquireStart) context.Context {
	p.maybe("AcquireStart")
	return p.journal.AcquireStart(ctx, e)
}

func (p *panicky) AcquireEnd(ctx context.Context, e core.AcquireEnd) any {
	p.maybe("AcquireEnd")
	return p.journal.AcquireEnd(ctx, e)
}

func (p *panicky) WaitStart(ctx context.Context, key string) {
	p.maybe("WaitStart")
	p.journal.WaitStart(ctx, key)
}

func (p *panicky) WaitEnd(ctx context.Context, key string) {
	p.maybe("WaitEnd")
	p.journal.WaitEnd(ctx, key)
}

func (p *panicky) HoldStart(e core.HoldStart) {
	p.maybe("HoldStart")
	p.journal.HoldStart(e)
}

func (p *panicky) HoldEnd(e core.HoldEnd) {
	p.maybe("HoldEnd")
	p.journal.HoldEnd(e)
}

func (p *panicky) ReleaseStart(ctx context.Context, e core.ReleaseStart) context.Context {
	p.maybe("ReleaseStart")
	return p.journal.ReleaseStart(ctx, e)
}

func (p *panicky) ReleaseEnd(ctx context.Context, e core.ReleaseEnd) {
	p.maybe("ReleaseEnd")
	p.journal.ReleaseEnd(ctx, e)
}

// quietly runs f as a handler under a recovery middleware.
func quietly(f func()) {
	defer func() { _ = recover() }()
	f()
}

// A Tracer that panics, and is recovered from, leaves no key held, and nobody behind it waiting.
func TestTracerPanics(t *testing.T) {
	for _, method := range []string{"AcquireStart", "AcquireEnd", "WaitStart", "WaitEnd", "HoldStart", "HoldEnd", "ReleaseStart",
		"ReleaseEnd"} {
		for _, elsewhere := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				b := whole{newScripted()}
				tracer := &panicky{in: method}
				locks := newLocks(t, b, core.WithTracer(tracer))
				holders := locks
				if elsewhere {
					holders = newLocks(t, b)
				}
				held := acquire(t, holders, "k")
				tracer.armed.Store(true)
				for range 2 {
					go quietly(func() {
						lease, err := locks.Acquire(t.Context(), "k", core.WithWait(time.Minute))
						if err != nil {
							t.Errorf("%s: %v", method, err)
							return
						}
						lease.Release(t.Context())
					})
				}
				synctest.Wait()
				quietly(func() { held.Release(t.Context()) })
				time.Sleep(5 * time.Second)
				if tracer.armed.Load() {
					t.Fatalf("%s was not called", method)
				}
				if b.held(t, "k") {
					t.Errorf("%s, elsewhere %v: the key is held still", method, elsewhere)
				}
				if n := locks.Gates(); n != 0 {
					t.Errorf("%s, elsewhere %v: %d keys are kept track of", method, elsewhere, n)
				}
			})
		}
	}
}

// The loss of a lease is told to its holder, also when the Tracer that is told of it panics.
func TestTracerPanicsAtALoss(t *testing.T) {
	b := whole{newScripted()}
	tracer := &panicky{in: "HoldEnd"}
	locks := newLocks(t, b, core.WithTracer(tracer))
	lease := acquire(t, locks, "k")
	tracer.armed.Store(true)
	quietly(func() { locks.ForceRelease(t.Context(), "k") })
	wantErr(t, context.Cause(lease.Context()), core.ErrLost)
}

// A Backend that panics in its caller's goroutine, and is recovered from, leaves the engine as it was.
func TestBackendPanics(t *testing.T) {
	for _, action := range []core.Action{core.Try, core.Release} {
		for _, carriedOut := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				b := whole{newScripted()}
				locks := newLocks(t, b)
				var armed atomic.Bool
				doom := func(op *core.Op) {
					if op.Action == action && armed.CompareAndSwap(true, false) {
						panic(action.String())
					}
				}
				if carriedOut {
					b.set(nil, doom)
				} else {
					b.set(func(_ context.Context, op *core.Op) bool { doom(op); return false }, nil)
				}
				for range 3 { // more than may travel alone
					armed.Store(true)
					quietly(func() { acquire(t, locks, "k", core.WithWait(time.Minute)).Release(t.Context()) })
					time.Sleep(time.Second) // until the undo has gone through, which is nobody's goroutine
				}
				if b.held(t, "k") || locks.Gates() != 0 {
					t.Errorf("%v, carried out %v: the key is held still, or its gate", action, carriedOut)
				}
				release(t, acquire(t, locks, "k"))
			})
		}
	}
}
