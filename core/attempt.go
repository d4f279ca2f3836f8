package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// The engine retries, not the client: each attempt to acquire has an owner of its own, so a lost reply can never be
// mistaken for somebody else's lock, and what an attempt may have taken is undone.
const (
	maxTries  = 3
	maxSplits = 5
	tryPause  = 8 * time.Millisecond // doubled each time, with jitter
	firstHand = 64                   // fences that a first grant reserves for those who queue already
)

// attempt asks the backend for the hold, again where the backend cannot serve, within the trip limit. An error means
// that the caller's context has ended; everything else is in op.
func (a *acquisition) attempt(g *gate) (op *Op, sent time.Time, err error) {
	began := time.Now()
	if a.tracer != nil {
		defer func() { a.stats.inBackend += time.Since(began) }()
	}
	limit := began.Add(tripLimit)
	fences, waiting := a.takeOff(g)
	sent = began
	for n := 1; ; n++ {
		a.stats.attempts++
		op = a.nextOp()
		*op = Op{Action: Try, Hold: a.want, Owner: newToken(), Fences: fences, Ticket: a.ticket}
		if a.wait > 0 {
			op.Waiter, op.Waiting = a.locks.id, waiting
		}
		if n > 1 {
			sent = a.locks.clock.now()
		}
		var answered *Op
		answered, err = a.locks.trips.do(a.trip, a.ctx, op, limit)
		a.lent = a.lent || answered != op // op is the trip's now
		op = answered
		if err != nil {
			return nil, sent, err
		}
		a.judge(op, sent)
		if !again(op, n) || !backoff(a.ctx, n, limit) {
			if op.Verdict == Refused {
				a.stats.note = op.HolderNote // of who stood in the way: kept when a later attempt is granted
			}
			return op, sent, nil
		}
	}
}

// nextOp returns the memory for an attempt: the first one's is the acquisition's own.
func (a *acquisition) nextOp() *Op {
	if a.first.Action == 0 {
		return &a.first
	}
	return new(Op)
}

// again tells whether attempt n may be followed by another.
func again(op *Op, n int) bool {
	switch {
	case op.Err == nil:
		return op.Split && n < maxSplits
	case errors.Is(op.Err, errNoQuorum), waitsOut(op.Err) != nil:
		return false // each node has had its time
	}
	return n < maxTries && errors.Is(op.Err, ErrUnavailable)
}

// waitsOut returns the error that a caller who may wait waits out.
func waitsOut(err error) *QuarantineError {
	quarantine, _ := errors.AsType[*QuarantineError](err)
	return quarantine
}

// takeOff marks the attempt as under way. It returns how many fences it asks for, and whether the engine may be among
// those that wait for the key by now.
func (a *acquisition) takeOff(g *gate) (fences int, waiting bool) {
	g.shard.Lock()
	defer g.shard.Unlock()
	g.flying, a.crossed = true, a.arriving
	if g.watch != nil {
		g.watch.drain(a.want.Fair) // a release before this attempt is nothing that it could miss
	}
	waiting = g.refusal != nil || g.watch != nil
	g.told = g.told || a.wait > 0
	if g.queue.len > 1 && a.want.Kind == Exclusive && !a.want.Fair {
		return firstHand, waiting
	}
	return 1, waiting
}

// judge looks at what came back: a grant after the lease's own end is none, and what may have been taken is undone.
func (a *acquisition) judge(op *Op, sent time.Time) {
	a.answered = a.locks.clock.now()
	if op.Err == nil && op.Verdict == Granted && !op.Degraded && !a.answered.Before(validUntil(sent, a.want.TTL)) {
		a.locks.undo.add(op, true)
		op.Err = fmt.Errorf("%w: the grant took %v, longer than the lease of %v runs", ErrUnavailable,
			a.answered.Sub(sent).Round(time.Millisecond), a.want.TTL)
		op.Unsent = true // dealt with
	}
	if ambiguous(op) {
		a.locks.undo.add(op, false)
	}
}

// backoff pauses before attempt n+1. False: ctx ends, or limit comes, before it would be over.
func backoff(ctx context.Context, n int, limit time.Time) bool {
	pause := tryPause << (n - 1)
	pause += rand.N(pause)
	if !time.Now().Add(pause).Before(limit) {
		return false
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// establish makes a granted attempt a tenure and the caller its first holder.
func (a *acquisition) establish(g *gate, op *Op, sent time.Time) (*Lease, error) {
	if err := ended(a.ctx); err != nil {
		a.locks.undo.add(op, true)
		return nil, a.stepDown(g, a.interrupted(g, err), false)
	}
	lease, err := a.begin(g, op, sent)
	if err != nil {
		a.locks.undo.add(op, true)
	}
	if err == ErrClosed {
		err = a.stepDown(g, err, true)
	}
	return lease, err
}

// begin starts the tenure, and its first hold. ErrClosed: the engine is closed. errAgain: somebody of this process is in
// the way, and a leads no more.
func (a *acquisition) begin(g *gate, op *Op, sent time.Time) (*Lease, error) {
	locks, now := a.locks, a.answered
	t := a.newTenure(g, op, sent)
	g.shard.Lock()
	defer g.shard.Unlock()
	if !g.fits(a) {
		a.stays = true
		g.land(nil)
		g.leave(a)
		return nil, errAgain
	}
	if !locks.live.add() {
		return nil, ErrClosed
	}
	g.queue.remove(a)
	g.leading, a.leads = false, false
	g.refusal, g.pollAt, g.yield, g.told = nil, time.Time{}, false, a.crossed
	if a.crossed {
		a.depart(g) // it may have arrived again after the grant
	}
	g.tenures = append(g.tenures, t)
	if op.Outside {
		t.chainEnd = now.Add(handOffChain)
	}
	lease := t.newLease(a, t.fence, now)
	t.fence, t.fenced = t.fence+1, max(0, t.fenced-1)
	lease.bound(a.maxHold)
	locks.watchdog.put(t, t.nextEvent())
	var verdict error // none where there may be room for more: they look again
	if g.flight != nil && !t.open && t.want.Kind == Exclusive {
		verdict = &NotAcquiredError{Key: a.key, RetryAfter: t.deadline.Sub(now)}
	}
	g.land(verdict)
	g.advance()
	return lease, nil
}

// newTenure makes a tenure of a granted attempt that went out at sent.
func (a *acquisition) newTenure(g *gate, op *Op, sent time.Time) *tenure {
	now := a.answered
	if op.Degraded {
		sent = now // granted here, after a trip that was in vain and may have taken longer than the TTL
	}
	return &tenure{locks: a.locks, gate: g, want: a.want, owner: op.Owner, home: op.Home, degraded: op.Degraded,
		open: op.Open, degradedWhy: op.DegradedReason, renew: a.renew, began: now, deadline: validUntil(sent, a.want.TTL),
		renewAt: sent.Add(a.want.TTL / 3), first: op.Fence, fence: op.Fence, fenced: op.Fenced, given: op.Fenced,
		givenAt: now, asked: now, slot: -1}
}

// free releases t in the backend, within the trip limit and whatever has become of ctx. It tells whether others are known
// to wait outside, and returns the error that the holder is told.
func (locks *Locks) free(ctx context.Context, t *tenure, keep time.Duration) (outside bool, err error) {
	limit := time.Now().Add(tripLimit)
	retried := false
	for n := 1; ; n++ {
		op := locks.ops.Get().(*Op)
		*op = *t.op(Release)
		op.Keep = keep
		op, _ = locks.trips.do(ctx, nil, op, limit) // no caller, so no error but the operation's own
		if op.Err != nil && again(op, n) && backoff(context.Background(), n, limit) {
			retried = retried || !op.Unsent
			continue
		}
		outside, err = op.Outside && op.Err == nil, locks.freed(t, op, retried)
		if op.Err == nil {
			locks.ops.Put(op) // answered, so the trip is over
		}
		return outside, err
	}
}

// freed turns the answer to a release into the holder's error.
func (locks *Locks) freed(t *tenure, op *Op, retried bool) error {
	key := t.want.Key
	switch {
	case op.Err != nil:
		locks.undo.add(t.op(Release), true)
		return fmt.Errorf("latchkit: release %q: %w", key, op.Err)
	case retried:
		return nil // by the attempt whose answer was lost, if not by this one; the key may be another's by now
	case op.Verdict == Absent:
		return lossError("%q had expired, or was deleted, before its release", key)
	case op.Verdict == Foreign:
		return lossError("%q had expired before its release, and is held by another", key)
	}
	return nil
}

// op returns an operation on the tenure's hold.
func (t *tenure) op(action Action) *Op {
	return &Op{Action: action, Hold: t.want, Owner: t.owner, Home: t.home, Waiter: t.locks.id}
}

// extend carries out Lease.Extend.
func (locks *Locks) extend(ctx context.Context, l *Lease, ttl time.Duration) error {
	t := l.hold.tenure
	for n := 1; ; n++ {
		t.gate.shard.Lock()
		op, limit := t.op(Extend), sooner(restated(t.deadline), time.Now().Add(tripLimit))
		t.gate.shard.Unlock()
		op.TTL = ttl
		sent := time.Now()
		op, err := locks.trips.do(ctx, ctx, op, limit)
		if err != nil {
			return fmt.Errorf("latchkit: extend %q: %w", l.key, err)
		}
		if err := ended(ctx); err != nil && op.Err != nil {
			return fmt.Errorf("latchkit: extend %q: %w", l.key, err)
		}
		if op.Err != nil && errors.Is(op.Err, ErrUnavailable) && backoff(ctx, n, limit) {
			continue
		}
		after := locks.renewed(t, op, sent, ttl)
		after()
		if err := l.heldError(); err != nil {
			return err
		}
		if op.Err != nil {
			return fmt.Errorf("latchkit: extend %q: %w", l.key, op.Err)
		}
		return nil
	}
}

// refillOp returns the operation of a refill at now. The shard is locked.
func (locks *Locks) refillOp(t *tenure, now time.Time) *Op {
	op := t.op(Refill)
	op.Fences = t.wantedFences(now)
	return op
}

// refill asks the backend for more fences, and whether anyone outside waits. A tenure that was parked meanwhile is
// handed on, or given back.
func (locks *Locks) refill(t *tenure, op *Op) {
	shard := t.gate.shard
	shard.Lock()
	limit := sooner(restated(t.deadline), time.Now().Add(tripLimit)) // a renewal may move it on meanwhile
	shard.Unlock()
	op, _ = locks.trips.do(context.Background(), nil, op, limit) // no caller, so no error but the operation's own
	now := time.Now()
	shard.Lock()
	t.refilling, t.asked = false, now
	after := func() {}
	switch {
	case t.state != held && t.state != parked:
	case op.Err != nil:
	case op.Verdict == Absent, op.Verdict == Foreign:
		after = t.lose(lossReason(op.Verdict), t.lossFor(op.Verdict))
	default:
		t.refilled(op, now)
		if op.Outside && t.chainEnd.IsZero() {
			t.chainEnd = now.Add(handOffChain)
		} else if !op.Outside {
			t.chainEnd = time.Time{}
		}
	}
	if t.state == parked {
		if t.handable(now) && t.fenced > 0 && now.Before(t.deadline) {
			t.handOff(now)
		} else {
			t.state = releasing
			locks.watchdog.remove(t)
			shard.Unlock()
			_ = locks.giveBack(context.Background(), t, 0) // its holder has been told already
			return
		}
	}
	shard.Unlock()
	after()
}

func lossReason(v Verdict) string {
	if v == Foreign {
		return "taken"
	}
	return "deleted"
}

func (t *tenure) lossFor(v Verdict) error {
	if v == Foreign {
		return lossError("%q is held by another", t.want.Key)
	}
	return lossError("%q has expired or was deleted in the backend", t.want.Key)
}
