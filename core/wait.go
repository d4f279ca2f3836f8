package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// acquisition is one Acquire on its way: trying, queued, or leading the queue.
type acquisition struct {
	settings
	locks *Locks
	ctx   context.Context // the caller's: the parent of the lease's context
	trip  context.Context // for the backend's trips: ctx, or what the Tracer made of it
	key   string          // as given
	want  Hold
	outer *Lease
	// ticket is the place of a fair waiter; empty otherwise.
	ticket string
	until  time.Time // when the wait is spent; zero: it may not wait, or waits for ever
	// shareUntil is for how long it waits for the verdicts of others' attempts at most; zero until it does.
	shareUntil time.Time
	// ready receives the one signal that ends the place in the queue; made when it is queued.
	ready  chan turn
	spare  chan turn // what ready was in an earlier life, empty
	queued bool      // guarded by the shard, as are leads, prev and next
	leads  bool
	quits  bool // it has left without the lock, and what the backend knows of it is withdrawn
	timer  *time.Timer

	prev, next *acquisition

	// lent: somebody else may still look at it.
	lent  bool
	first Op        // of the first attempt
	began time.Time // zero for one that may not wait, while there is no Tracer
	// answered is when the last attempt was judged.
	answered time.Time
	stats    stats
}

// stats is what a Tracer is told, counted along the way.
type stats struct {
	attempts                     int
	reentry, handOff, waiting    bool
	inGate, inBackend, forHolder time.Duration
	note                         string
	mark                         any
}

// turn is the signal to somebody in the queue: a lease, an error, or (both nil) the lead.
type turn struct {
	lease *Lease
	err   error
}

func newAcquisition(ctx context.Context, locks *Locks, key string, s settings) *acquisition {
	a := locks.acquisitions.Get().(*acquisition)
	a.settings, a.locks, a.ctx, a.trip, a.key = s, locks, ctx, ctx, key
	a.want = Hold{Key: s.prefix + key, Kind: s.kind, Limit: s.limit, Fair: s.fair, TTL: s.ttl, Label: s.label,
		Replicas: s.replicas, ReplicaTimeout: s.replicaTimeout}
	a.outer, _ = FromContext(ctx)
	if s.fair && s.wait > 0 {
		a.ticket = locks.id + newToken()[:len(locks.id)]
		a.lent = true // to those who keep the line
	}
	return a
}

// recycle gives back the memory of an acquisition that has ended. It is a good part of what a lock costs, most of all
// where a hot key is handed on. Nobody refers to it any more: it has left its queue, and a trip that goes on without it
// has lent it.
func (a *acquisition) recycle() {
	if a.lent || a.queued || len(a.spare) > 0 {
		return
	}
	locks, spare := a.locks, a.spare
	*a = acquisition{spare: spare}
	locks.acquisitions.Put(a)
}

func (a *acquisition) signal(t turn) {
	if a.ready != nil {
		a.ready <- t // one slot, one signal at a time: see queued
	}
}

// acquire runs the acquisition to its end.
func (a *acquisition) acquire() (*Lease, error) {
	outer, err := a.locks.descends(a.outer, a.want.Key)
	if err != nil {
		return nil, err // before ctx, which has ended with that lease: lost is more than cancelled
	}
	if err := a.ctx.Err(); err != nil {
		return nil, a.ended(err)
	}
	if outer != nil {
		a.stats.reentry = true
		return a.locks.reenter(a, outer)
	}
	if c := carriedFor(a.ctx, a.want.Key); c != nil {
		return a.join(c)
	}
	if a.wait > 0 {
		a.began = time.Now()
		if a.wait != Forever {
			a.until = a.began.Add(a.wait)
		}
	}
	for {
		lease, err := a.enter()
		if err != errAgain {
			return lease, err
		}
	}
}

// errAgain: the attempt whose verdict was shared had none for others.
var errAgain = errors.New("again")

// enter passes the gate: at once as its leader, by way of the queue, or not at all.
func (a *acquisition) enter() (*Lease, error) {
	shard := a.locks.gates.shard(a.want.Key)
	shard.Lock()
	if a.locks.live.isClosed() {
		shard.Unlock()
		return nil, ErrClosed
	}
	g := shard.open(a.want.Key)
	clear := g.queue.len == 0 && !g.leading && g.compatible(&a.want)
	switch {
	case clear:
		a.leads, g.leading = true, true
		g.flying = a.wait == 0 || g.pollAt.IsZero() // from now on, so that nobody sees a leader who does not try
		g.queue.push(a)
		shard.Unlock()
		return a.lead(g)
	case a.wait > 0 && g.queue.len >= maxWaiters:
		shard.Unlock()
		return nil, fmt.Errorf("%w: %q has %d in this process", ErrTooManyWaiters, a.key, maxWaiters)
	case a.wait > 0:
		if a.spare == nil {
			a.spare = make(chan turn, 1)
		}
		a.ready = a.spare
		if a.tracer != nil && len(g.tenures) > 0 {
			a.stats.mark = g.tenures[0].hold.markOf() // of who stands in the way, whether it is served in the end or not
		}
		g.queue.push(a)
		if a.ticket != "" {
			a.locks.standInLine(g, a)
		}
		shard.Unlock()
		return a.queue(g)
	case g.flying && g.compatible(&a.want):
		f := g.board()
		shard.Unlock()
		if err := a.share(f); err != nil {
			return nil, err
		}
		return nil, errAgain
	default:
		err := g.busy(a.key, time.Now())
		shard.Unlock()
		a.stats.mark, a.stats.note = err.mark, err.note
		return nil, err
	}
}

// share waits for the verdict of an attempt that is under way, instead of making one of its own. nil: it has none that
// would be a's as well.
func (a *acquisition) share(f *flight) error {
	began := time.Now()
	defer func() { a.stats.inGate += time.Since(began) }()
	if a.shareUntil.IsZero() {
		a.shareUntil = began.Add(tripLimit) // several may follow each other
	}
	select {
	case <-f.done:
	case <-a.ctx.Done():
		return a.ended(a.ctx.Err())
	case <-a.locks.trips.alarms.at(a.shareUntil):
		return fmt.Errorf("latchkit: acquire %q: %w: not answered within %v: %w", a.key, ErrUnavailable, tripLimit, ErrTripTimeout)
	}
	if f.err == nil || f.want.Replicas > a.want.Replicas {
		return nil
	}
	busy, ok := errors.AsType[*NotAcquiredError](f.err)
	if !ok {
		return f.err
	}
	if !busy.Completed && (f.want.Kind != a.want.Kind || f.want.Limit != a.want.Limit || f.want.Fair != a.want.Fair) {
		return nil // what kept the one out may let the other in
	}
	again := *busy
	again.Key, again.cause = a.key, nil
	return &again
}

// queue waits for a turn.
func (a *acquisition) queue(g *gate) (*Lease, error) {
	panics := true
	defer func() {
		a.disarm()
		if panics { // the Tracer did; whoever recovers finds the queue without it
			if t := a.withdraw(g); t.lease != nil {
				_ = t.lease.Release(a.ctx)
			}
		}
	}()
	a.waits()
	panics = false
	began := time.Now()
	var t turn
	var why error
	select {
	case t = <-a.ready:
	case <-a.ctx.Done():
		why = a.ctx.Err()
	case <-a.alarm():
		why = errWaitSpent
	}
	a.stats.inGate += time.Since(began)
	if why != nil {
		t = a.withdraw(g)
	}
	switch {
	case t.lease != nil:
		return a.takeOver(t.lease)
	case t.err != nil:
		return nil, a.shared(t.err)
	case why != nil:
		return nil, a.gaveUp(g, why)
	}
	return a.lead(g)
}

// gaveUp is the error of an acquisition that has left the queue because of why. As long as nobody is known to hold the
// key, for the first try of those in front is under way, it is their verdict: a store that does not answer is not "busy".
func (a *acquisition) gaveUp(g *gate, why error) error {
	for {
		g.shard.Lock()
		busy := g.busy(a.key, time.Now())
		known := g.refusal != nil || !g.open()
		if known || why == errWaitSpent && !g.flying {
			g.shard.Unlock()
			return a.refused(busy, why)
		}
		if why != errWaitSpent {
			g.shard.Unlock()
			return a.ended(why)
		}
		f := g.board()
		g.shard.Unlock()
		if err := a.share(f); err != nil {
			return err
		}
	}
}

// withdraw takes the acquisition out of the queue. It returns the signal that came at the same moment, if any.
func (a *acquisition) withdraw(g *gate) (t turn) {
	g.shard.Lock()
	defer g.shard.Unlock()
	select {
	case t = <-a.ready:
	default:
	}
	g.leave(a)
	if t.lease == nil {
		a.quit(g)
	}
	return t
}

// takeOver makes a handed lease the caller's. One whose wait was spent in the same moment takes it, one whose context
// has ended gives it back. One that ended before its taker came to run, in a process that stood still, is no lease.
func (a *acquisition) takeOver(lease *Lease) (*Lease, error) {
	if err := a.ctx.Err(); err != nil {
		_ = lease.Release(a.ctx) // what fails is undone later
		return nil, a.refused(&NotAcquiredError{}, err)
	}
	if lease.heldError() != nil {
		return nil, errAgain
	}
	a.stats.handOff = true
	if a.maxHold > 0 {
		shard := lease.hold.tenure.gate.shard
		shard.Lock()
		lease.bound(a.maxHold)
		shard.Unlock()
	}
	return lease, nil
}

// shared turns the verdict that ended the whole queue into the caller's error.
func (a *acquisition) shared(err error) error {
	if busy, ok := errors.AsType[*NotAcquiredError](err); ok {
		again := *busy
		again.Key = a.key
		return &again
	}
	return err
}

var errWaitSpent = errors.New("latchkit: wait spent")

// refused completes a refusal with what ended the wait.
func (a *acquisition) refused(busy *NotAcquiredError, why error) error {
	busy.Key = a.key
	if why != nil && why != errWaitSpent {
		busy.cause = why
	}
	a.stats.mark, a.stats.note = busy.mark, busy.note
	return busy
}

// ended is the error of an acquisition whose context ended before anything was known about the key.
func (a *acquisition) ended(cause error) error {
	return fmt.Errorf("latchkit: acquire %q: %w", a.key, cause)
}

// waits tells the Tracer, once, that the acquisition waits.
func (a *acquisition) waits() {
	if a.tracer != nil && !a.stats.waiting {
		a.stats.waiting = true
		a.tracer.WaitStart(a.trip, a.key)
	}
}

// alarm returns a channel that fires when the wait is spent; nil, which never does, when there is no such time.
func (a *acquisition) alarm() <-chan time.Time {
	if a.until.IsZero() {
		return nil
	}
	if a.timer == nil {
		a.timer = time.NewTimer(time.Until(a.until))
	}
	return a.timer.C
}

// disarm stops the alarm.
func (a *acquisition) disarm() {
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
}

// lead talks to the backend for the queue until the acquisition has its lease or its wait is over. On return it
// leads no more, and when the Backend or the Tracer panics neither: whoever recovers finds the key as it was.
func (a *acquisition) lead(g *gate) (*Lease, error) {
	panics := true
	defer func() {
		a.disarm()
		if panics {
			_ = a.stepDown(g, nil, false)
		}
	}()
	lease, err := a.strive(g)
	panics = false
	return lease, err
}

func (a *acquisition) strive(g *gate) (*Lease, error) {
	var quarantine error // the last verdict, when it was one that is waited out
	for {
		switch busy, why := a.pause(g); {
		case why == ErrClosed:
			return nil, a.stepDown(g, ErrClosed, true)
		case why != nil && quarantine != nil:
			return nil, a.stepDown(g, a.waitedOut(quarantine, why), false)
		case why != nil:
			return nil, a.stepDown(g, a.refused(busy, why), false)
		}
		op, sent, err := a.attempt(g)
		quarantine = nil
		switch {
		case err != nil:
			// The caller's context ended in mid-trip; the trip's owner cleans up.
			return nil, a.stepDown(g, a.interrupted(g, err), false)
		case a.wait > 0 && waitsOut(op.Err) != nil && !a.locks.live.isClosed():
			quarantine = op.Err
			g.shard.Lock()
			g.pollAt = nextPoll(waitsOut(op.Err).RetryAfter)
			g.land(a.waitedOut(op.Err, errWaitSpent))
			g.shard.Unlock()
			continue
		case op.Err != nil:
			return nil, a.stepDown(g, fmt.Errorf("latchkit: acquire %q: %w", a.key, op.Err), true)
		case op.Verdict == Granted:
			return a.establish(g, op, sent)
		}
		busy := &NotAcquiredError{Key: a.key, RetryAfter: op.Left, Completed: op.Completed, note: op.HolderNote}
		if a.wait == 0 || op.Completed {
			return nil, a.stepDown(g, a.refused(busy, nil), true)
		}
		g.shard.Lock()
		if a.locks.live.isClosed() {
			g.shard.Unlock()
			return nil, a.stepDown(g, ErrClosed, true)
		}
		g.refusal, g.yield = busy, false
		g.pollAt = nextPoll(op.Left)
		if op.Silent {
			g.pollAt = sooner(g.pollAt, time.Now().Add(blindPause()))
		}
		g.land(busy)
		g.shard.Unlock()
	}
}

// waitedOut is the error of a wait for nodes in quarantine that ended because of why.
func (a *acquisition) waitedOut(quarantine, why error) error {
	if why == errWaitSpent {
		return fmt.Errorf("latchkit: acquire %q: %w", a.key, quarantine)
	}
	return fmt.Errorf("latchkit: acquire %q: %w: %w", a.key, quarantine, why)
}

// stepDown ends the lead with err, which is also the verdict for those who share the attempt. When it says something
// about the key or the backend, and not about this caller, it holds for the queue behind as well.
func (a *acquisition) stepDown(g *gate, err error, forAll bool) error {
	g.shard.Lock()
	defer g.shard.Unlock()
	if !forAll {
		g.land(nil)
		g.leave(a)
		a.quit(g)
		return err
	}
	g.land(err)
	g.queue.remove(a)
	g.leading, a.leads = false, false
	if busy, ok := errors.AsType[*NotAcquiredError](err); ok && !busy.Completed {
		g.refusal = busy
	} else {
		g.fail(err, a.want.Replicas)
	}
	a.quit(g)
	g.advance()
	return err
}

// interrupted is the error of a leader whose context ended in mid-trip: joined with ErrNotAcquired when the key was
// known to be held.
func (a *acquisition) interrupted(g *gate, cause error) error {
	g.shard.Lock()
	defer g.shard.Unlock()
	if g.refusal == nil {
		return a.ended(cause)
	}
	again := *g.refusal
	return a.refused(&again, cause)
}

// blindPoll is the mean interval of polls where the backend cannot tell of a release.
const blindPoll = 100 * time.Millisecond

func blindPause() time.Duration { return blindPoll/2 + rand.N(blindPoll) }

// nextPoll is when a waiter tries again unless it is woken: after 1 to 3 s, with jitter so that processes do not march in
// step, or when the holder's TTL ends, for expiry wakes nobody. Within a process polls fall on common instants, so that
// those of many keys meet in few trips.
func nextPoll(left time.Duration) time.Time {
	now := time.Now()
	at := now.Add(time.Second + rand.N(2*time.Second-pollGrain))
	at = at.Add(pollGrain - (time.Duration(at.UnixNano())+pollPhase)%pollGrain)
	if left > 0 {
		at = sooner(at, now.Add(left+time.Millisecond))
	}
	return at
}

const pollGrain = 128 * time.Millisecond

// pollPhase sets the processes apart.
var pollPhase = rand.N(pollGrain)

// pause waits until it is worth trying (again). It returns the refusal and the reason when the wait ends first.
func (a *acquisition) pause(g *gate) (*NotAcquiredError, error) {
	if a.wait == 0 {
		return nil, nil
	}
	g.shard.Lock()
	pollAt, w, yield, refusal := g.pollAt, g.watch, g.yield, g.refusal
	g.shard.Unlock()
	if pollAt.IsZero() {
		return nil, nil
	}
	busy := NotAcquiredError{}
	if refusal != nil {
		busy = *refusal
	}
	began := time.Now()
	if !a.until.IsZero() && !began.Before(a.until) {
		return &busy, errWaitSpent // by the attempt: another would take as long again
	}
	defer func() { a.stats.forHolder += time.Since(began) }()
	a.waits()
	if w == nil {
		if w = a.subscribe(g); w.stands && !yield {
			return nil, nil // look again: a release may have come before the subscription stood
		}
	}
	if !w.stands {
		pollAt = sooner(pollAt, began.Add(blindPause()))
	}
	poll := time.NewTimer(time.Until(pollAt))
	defer poll.Stop()
	select {
	case <-w.wake:
		return nil, nil
	case <-poll.C:
		return nil, nil
	case <-a.ctx.Done():
		return &busy, a.ctx.Err()
	case <-a.alarm():
		return &busy, errWaitSpent
	case <-a.locks.live.closing:
		return &busy, ErrClosed
	}
}

func sooner(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
