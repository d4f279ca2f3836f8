package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Lease is the right to work on a key until Release, or until it is lost. All methods may be called concurrently,
// and on a nil Lease, which stands for a lock that was not needed.
type Lease struct {
	locks  *Locks
	hold   *hold
	key    string          // as given to Acquire
	parent context.Context // Acquire's
	outer  *Lease          // the innermost lease under which Acquire was called

	// Guarded by the gate's shard.
	released bool
	sibling  *Lease // the next lease of the same hold
	maxTimer *time.Timer

	// The context is made when it is first asked for: most short holds never do.
	mu     sync.Mutex
	ctx    leaseContext
	cancel context.CancelCauseFunc
	cause  error // why the lease's context ended; nil while it has not
}

// Key returns the key as it was given to Acquire.
func (l *Lease) Key() string {
	if l == nil {
		return ""
	}
	return l.key
}

// Owner returns the owner token: 32 hexadecimal digits. It is what the backend checks before it frees or extends,
// so it is a secret; keep it out of logs.
func (l *Lease) Owner() string {
	if l == nil || l.hold == nil {
		return ""
	}
	return l.hold.tenure.owner
}

// Backend returns the name of the backend.
func (l *Lease) Backend() string {
	if l == nil || l.hold == nil {
		return ""
	}
	return l.locks.backend.Name()
}

// Fence returns the fencing token: greater than that of every earlier lease on the key. A store that refuses a
// write with a smaller fence than the greatest it has seen is safe from holders that were paused past their lease.
// 0: this backend, or a fallback in its stead, cannot fence.
//
// Source: https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html
func (l *Lease) Fence() int64 {
	if l == nil || l.hold == nil {
		return 0
	}
	return l.hold.fence
}

// Deadline returns when the lease ends unless it is extended: by this process's clock, counted from before the
// command was sent, less what clocks may drift. The watchdog moves it on.
func (l *Lease) Deadline() time.Time {
	if l == nil || l.hold == nil {
		return time.Time{}
	}
	t := l.hold.tenure
	t.gate.shard.Lock()
	defer t.gate.shard.Unlock()
	return restated(t.deadline)
}

// Remaining returns how long the lease still runs unless it is extended; 0 once it was released or lost.
func (l *Lease) Remaining() time.Duration {
	if l == nil || l.hold == nil {
		return 0
	}
	t, now := l.hold.tenure, l.locks.clock.now()
	t.gate.shard.Lock()
	defer t.gate.shard.Unlock()
	if l.released || l.hold.ended || !t.live(now) {
		return 0
	}
	return t.deadline.Sub(now)
}

// Degraded tells whether the lease is held without the store, by a fallback: other processes may hold the key too.
// It may turn true while the lease is held.
func (l *Lease) Degraded() bool {
	if l == nil || l.hold == nil {
		return false
	}
	t := l.hold.tenure
	t.gate.shard.Lock()
	defer t.gate.shard.Unlock()
	return t.degraded
}

// Context returns a child of Acquire's context that ends with the lease; FromContext finds the lease in it.
// context.Cause tells why it ended: ErrReleased, ErrLost, ErrMaxHold, ErrClosed, or the parent's cause. Work done
// under the lock should run under it. The end of the parent does not release the lease.
func (l *Lease) Context() context.Context {
	if l == nil || l.parent == nil {
		return context.Background()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancel == nil {
		l.ctx.lease = l
		l.ctx.Context, l.cancel = context.WithCancelCause(l.parent)
		if l.cause != nil {
			l.cancel(l.cause)
		}
	}
	return &l.ctx
}

// leaseContext is the context of a lease, in which FromContext finds it.
type leaseContext struct {
	context.Context
	lease *Lease
}

func (c *leaseContext) Value(key any) any {
	if key == (leaseKey{}) {
		return c.lease
	}
	return c.Context.Value(key)
}

// finish ends the lease's context, once. The shard may be locked: no code of the caller's runs in here.
func (l *Lease) finish(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return
	}
	l.cause = cause
	if l.cancel != nil {
		l.cancel(cause)
	}
}

// Release gives the lock back. It works when ctx is already dead, takes 2 s at most, and stops renewal first.
//
// nil: it was freed, or passed on. ErrLost: the lease had ended before; another holder's key is untouched.
// ErrNotHeld: it was released before. ErrUnavailable: the backend could not be reached; the key goes with a later
// attempt of the engine or with its TTL. ErrDenied: it refused; the key goes with its TTL. After any of these the lease is
// over, and its context has ended.
func (l *Lease) Release(ctx context.Context) error { return l.release(ctx, 0) }

// ReleaseAfter says that the work is done, and keeps others out for d more (0 to 24 h): they are told that it is
// completed. Errors are those of Release, and ErrInvalidOption for a d out of range, which releases nothing. Of leases
// that re-entered one another the last to be released decides.
func (l *Lease) ReleaseAfter(ctx context.Context, d time.Duration) error {
	if d < 0 || d > MaxTTL {
		return invalid("ReleaseAfter", d, "0 to 24h")
	}
	return l.release(ctx, d)
}

func (l *Lease) release(ctx context.Context, keep time.Duration) error {
	if l == nil || l.hold == nil {
		return nil
	}
	h, t := l.hold, l.hold.tenure
	now := l.locks.clock.now()
	t.gate.shard.Lock()
	if t.state == held && !l.released && !now.Before(t.deadline) {
		// The watchdog has not come round yet; the clock decides all the same.
		after := t.expire()
		t.gate.shard.Unlock()
		after()
		t.gate.shard.Lock()
	}
	if l.released {
		t.gate.shard.Unlock()
		return fmt.Errorf("%w: %q was released before", ErrNotHeld, l.key)
	}
	if t.state == lost && t.hold == h {
		first := h.story != nil && !h.lossTold
		if first {
			h.lossTold = true
		}
		t.bury(h) // as in heldError
		t.gate.shard.Unlock()
		if first {
			l.locks.traceRelease(ctx, l, false, t.loss)
		}
		return t.loss
	}
	l.released = true
	l.unbound()
	h.count--
	if h.count > 0 {
		h.forget(l)
		t.gate.shard.Unlock()
		l.finish(ErrReleased)
		return nil
	}
	return l.locks.endHold(ctx, l, keep, now) // unlocks
}

// forget takes a re-entered lease off the hold's list, which may last for long. The first stays: it began the hold.
func (h *hold) forget(l *Lease) {
	for before := h.leases; before.sibling != nil; before = before.sibling {
		if before.sibling == l {
			before.sibling, l.sibling = l.sibling, nil
			return
		}
	}
}

// endHold ends a hold whose last lease was released: the tenure goes to the next in the queue, or back to the backend.
// It unlocks the shard.
func (locks *Locks) endHold(ctx context.Context, l *Lease, keep time.Duration, now time.Time) error {
	h, t := l.hold, l.hold.tenure
	defer h.end(ErrReleased, "")()
	if keep == 0 && t.handable(now) {
		if t.wantsRefill(now) {
			t.refilling = true
			go locks.refill(t, locks.refillOp(t, now))
		}
		handed := t.fenced > 0
		if handed {
			t.handOff(now)
		} else if t.refilling {
			t.state, t.hold = parked, nil
			handed = true
		}
		if handed {
			t.gate.shard.Unlock()
			l.finish(ErrReleased)
			locks.traceRelease(ctx, l, true, nil)
			return nil
		}
	}
	t.state = releasing
	locks.watchdog.remove(t)
	t.gate.shard.Unlock()
	l.finish(ErrReleased)

	if h.story == nil {
		return locks.giveBack(ctx, t, keep)
	}
	return locks.giveBackTraced(ctx, l, keep)
}

// giveBackTraced is giveBack with the Tracer told about it. One that panics keeps nothing from being given back.
func (locks *Locks) giveBackTraced(ctx context.Context, l *Lease, keep time.Duration) error {
	h, t := l.hold, l.hold.tenure
	start := ReleaseStart{Backend: h.start.Backend, Key: l.key, Kind: t.want.Kind, Mark: h.mark}
	panics := true
	defer func() {
		if panics {
			_ = locks.giveBack(ctx, t, keep)
		}
	}()
	rctx := h.tracer.ReleaseStart(ctx, start)
	panics = false
	err := locks.giveBack(rctx, t, keep)
	h.tracer.ReleaseEnd(rctx, ReleaseEnd{ReleaseStart: start, Err: err})
	return err
}

// giveBack frees a releasing tenure in the backend, and lets the queue go on, whatever the backend answers.
func (locks *Locks) giveBack(ctx context.Context, t *tenure, keep time.Duration) error {
	outside, panics := false, true
	defer func() {
		if panics { // the Backend
			locks.undo.add(t.op(Release), true)
		}
		t.leave(outside)
	}()
	outside, err := locks.free(ctx, t, keep)
	panics = false
	return err
}

// leave ends a releasing tenure. Whom others outside wait for has the queue let them go first: they have waited for
// longer than a caller that comes now.
func (t *tenure) leave(outside bool) {
	g := t.gate
	g.shard.Lock()
	defer g.shard.Unlock()
	t.state = gone
	if outside && t.want.Kind == Exclusive {
		g.pollAt, g.yield = time.Now().Add(handOffChain), true
	}
	g.drop(t)
	if g.watch != nil && (t.want.Kind != Exclusive || t.want.Join != "") {
		g.watch.nudge() // the leader waits for a hold like this one, and does not hear of our own releases
	}
}

func (locks *Locks) traceRelease(ctx context.Context, l *Lease, handOff bool, err error) {
	h := l.hold
	if h.story == nil {
		return
	}
	start := ReleaseStart{Backend: h.start.Backend, Key: l.key, Kind: h.start.Kind, Mark: h.mark}
	ctx = h.tracer.ReleaseStart(ctx, start)
	h.tracer.ReleaseEnd(ctx, ReleaseEnd{ReleaseStart: start, HandOff: handOff, Err: err})
}

// Extend sets the lease's TTL to ttl (10 ms to 24 h) from now on, unless more is left: it never shortens, and never
// brings back a lease that has ended. Renewal goes on with the TTL of Acquire.
//
// ErrLost: the lease has ended. ErrNotHeld: it was released. ErrUnavailable: the backend could not be reached within 2 s;
// the lease runs to its deadline. ErrInvalidOption: ttl is out of range. It returns ctx's error when that ends first.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return invalid("Extend", ttl, "10ms to 24h")
	}
	if l == nil || l.hold == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("latchkit: extend %q: %w", l.key, err)
	}
	if err := l.heldError(); err != nil {
		return err
	}
	return l.locks.extend(ctx, l, ttl)
}

// heldError is nil while the lease is held.
func (l *Lease) heldError() error {
	t := l.hold.tenure
	t.gate.shard.Lock()
	after := func() {}
	switch {
	case t.state == held && !l.locks.clock.now().Before(t.deadline):
		after = t.expire()
	case t.state == lost && t.hold == l.hold:
		t.bury(l.hold) // who found the loss may still be about to
	}
	released, loss := l.released || (l.hold.ended && t.state != lost), t.loss
	if t.hold != l.hold {
		loss = nil
	}
	t.gate.shard.Unlock()
	after()
	switch {
	case released:
		return fmt.Errorf("%w: %q was released before", ErrNotHeld, l.key)
	case loss != nil:
		return loss
	}
	return nil
}

// overdue ends the lease's context after WithMaxHold.
func (l *Lease) overdue() {
	t := l.hold.tenure
	t.gate.shard.Lock()
	over := !l.released && t.state == held && t.hold == l.hold
	if over && l.hold.leases == l {
		// The lease that began the hold takes renewal along; one that only re-entered must not.
		t.renew = false
		t.locks.watchdog.put(t, t.deadline)
	}
	t.gate.shard.Unlock()
	if over {
		l.finish(ErrMaxHold)
	}
}

// descends returns the lease of key under which ctx runs, nil if there is none that is still held, and ErrLost when
// the innermost one was lost.
func (locks *Locks) descends(outer *Lease, key string) (*Lease, error) {
	for l := outer; l != nil; l = l.outer {
		if l.locks != locks || l.hold == nil || l.hold.tenure.gate.key != key {
			continue
		}
		switch err := l.heldError(); {
		case err == nil:
			return l, nil
		case errors.Is(err, ErrLost):
			return nil, err
		}
	}
	return nil, nil
}
