package core

import (
	"fmt"
	"time"
)

// A tenure is one grant by the backend. A hold is the right of one caller within it, and a Lease is a handle on a
// hold: several when the caller re-enters. Holds of one process may follow one another in a tenure (hand-off), each
// with a fence of its own; deadline, renewal and owner belong to the tenure.
//
// The states of a tenure, and who moves it; each move is made under the gate's shard:
//
//	(none)    ──▶ held       granted in time                   the leader: begin; who joins a hold: takePart
//	held      ──▶ held       the next in the queue takes over  the last Release of the hold: handOff
//	held      ──▶ parked     that needs a fence on its way     the last Release of the hold: endHold
//	parked    ──▶ held       fences have come                  refill: handOff
//	parked    ──▶ releasing  none have, or nobody may have it  refill
//	held      ──▶ releasing  nobody takes over                 the last Release of the hold: endHold
//	releasing ──▶ gone       the trip is over, whatever it was Release, refill: leave
//	held,     ──▶ lost       the deadline has passed           the watchdog, or whoever looks first: expire
//	parked                   the backend said Absent, Foreign  a renewal, Extend, refill: lose
//	                         it was taken away                 ForceRelease, Close when its ctx has ended: lose
//
// Held and parked tenures are in the watchdog's schedule; a tenure enters it before its first lease is visible to
// anyone, and leaves it before the release trip is sent. So no renewal begins after a release; one that had begun before
// finds the key gone, for it creates nothing. A reply for a tenure that has left changes nothing: every reply looks at
// state first.
//
// The states of a lease, as its holder sees them:
//
//	live ──▶ released     Release: once, ErrLost if the backend had lost it; afterwards ErrNotHeld
//	live ──▶ lost         its tenure was; final: Release and Extend say ErrLost
//	live ──▶ overdue      WithMaxHold's timer: the context has ended, and renewal stops if the lease began the hold; then
//	                      released or lost
//	live ──▶ closing      Close: the context has ended, renewal goes on; then released or lost
//
// Its context ends at the first of these moves, with their cause, or before with the context that Acquire was given,
// which ends nothing else.
type tenure struct {
	locks *Locks
	gate  *gate
	want  Hold // what was granted
	owner string
	home  any
	hold  *hold // nil while parked

	state     tenureState
	renew     bool
	exported  bool // the owner left the process: never handed on
	degraded  bool
	open      bool // it keeps nobody out
	renewing  bool
	refilling bool
	// degradedWhy is Op.DegradedReason.
	degradedWhy string
	began       time.Time
	deadline    time.Time // the lease's end by our clock: before the winning attempt was sent, plus TTL, minus drift
	renewAt     time.Time
	failures    int // renewals in a row that did not reach the backend
	loss        error

	first    int64     // the fence of the grant: the one that the backend shows
	fence    int64     // the next fence for a hand-off
	fenced   int       // how many are left from it on
	given    int       // how many they were
	givenAt  time.Time // and since when
	asked    time.Time // when the backend was last asked for outside waiters
	chainEnd time.Time // no hand-off after it: somebody outside waits; zero: nobody is known to

	due  time.Time // the watchdog's
	slot int       // its place in the watchdog's heap, -1 when absent
}

type tenureState uint8

const (
	held tenureState = iota
	parked
	releasing
	lost
	gone
)

// hold is the right of one caller.
type hold struct {
	tenure *tenure
	fence  int64
	count  int // leases not yet released
	leases *Lease
	began  time.Time
	ended  bool
	*story // nil without a Tracer
}

// story is what the Tracer knows of a hold.
type story struct {
	tracer Tracer
	start  HoldStart // as it was told, so that what it counted up is counted down
	mark   any
	told   bool // it knows that the hold began
	// lossTold: it knows of the Release that found it lost.
	lossTold bool
	late     *HoldEnd // it ended before that
}

// markOf is what the Tracer has left in the hold.
func (h *hold) markOf() any {
	if h == nil || h.story == nil {
		return nil
	}
	return h.mark
}

const (
	// handOffChain is how long hand-offs go on once somebody outside is known to wait.
	handOffChain = 2 * time.Millisecond
	// maxTenure caps a chain of hand-offs in any case, for the sake of waiters that nobody can see: other
	// libraries' pollers.
	maxTenure = time.Second
	// A refill for fences asks for reserve of them, and for up to mostFences where they are used up before handOffChain has
	// passed. No more than are needed: a server gives one each µs, for all keys, and the counters of a RedLock run ahead of
	// the clock when more are taken.
	reserve    = 128
	mostFences = 1024
)

// drift is what a lease's clock may be off by while it runs: 1 % and 2 ms, as in the RedLock algorithm.
// Source: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// validUntil is the end of a lease whose attempt went out at sent.
func validUntil(sent time.Time, ttl time.Duration) time.Time { return sent.Add(ttl - drift(ttl)) }

// live tells whether the tenure can still be worked under at now.
func (t *tenure) live(now time.Time) bool {
	return (t.state == held || t.state == parked) && now.Before(t.deadline)
}

// handable tells whether the tenure may be passed on at now to the head of the queue, were there a fence for it.
func (t *tenure) handable(now time.Time) bool {
	next := t.gate.queue.head
	switch {
	case next == nil, t.want.Kind != Exclusive, t.exported, t.degraded, t.want.Fair:
		return false
	case next.want.Kind != Exclusive, next.want.Fair, next.want.TTL != t.want.TTL, next.renew != t.renew,
		next.want.Label != t.want.Label, next.want.Replicas > t.want.Replicas:
		return false
	case t.deadline.Sub(now) < t.want.TTL/2:
		return false
	case now.Sub(t.began) > maxTenure:
		return false
	case !t.chainEnd.IsZero() && !now.Before(t.chainEnd):
		return false
	}
	return true
}

// handOff gives the tenure to the head of the queue. The tenure is handable and has a fence.
func (t *tenure) handOff(now time.Time) {
	next := t.gate.queue.head
	t.gate.queue.remove(next)
	t.state = held
	lease := t.newLease(next, t.fence, now)
	t.fence++
	t.fenced--
	next.signal(turn{lease: lease})
}

// newLease starts a hold of a in the tenure.
func (t *tenure) newLease(a *acquisition, fence int64, now time.Time) *Lease {
	both := &struct { // one allocation
		lease Lease
		hold  hold
	}{
		lease: Lease{locks: t.locks, key: a.key, parent: a.ctx, outer: a.outer},
		hold:  hold{tenure: t, fence: fence, count: 1, began: now},
	}
	h, lease := &both.hold, &both.lease
	if a.tracer != nil {
		h.story = &story{tracer: a.tracer}
		h.start = HoldStart{Backend: t.locks.backend.Name(), Key: a.key, Kind: a.want.Kind, Degraded: t.degraded,
			DegradedReason: t.degradedWhy}
	}
	lease.hold, h.leases, t.hold = h, lease, h
	return lease
}

// wantsRefill tells whether it is time to ask for fences, or whether anyone outside waits.
func (t *tenure) wantsRefill(now time.Time) bool {
	return !t.refilling && (t.runsShort() || now.Sub(t.asked) >= handOffChain)
}

// runsShort tells whether it is time to ask for fences: early enough for those that are left to last till the answer, and
// late enough for the server to have others, for it gave what it had.
func (t *tenure) runsShort() bool {
	return t.fenced < max(1, t.given/4, min(t.given/2, firstHand))
}

// wantedFences is how many a refill at now asks for: one, for it cannot be none, where it is only to tell of outside
// waiters.
func (t *tenure) wantedFences(now time.Time) int {
	switch {
	case !t.runsShort():
		return 1
	case now.Sub(t.givenAt) < handOffChain:
		return min(max(reserve, 2*t.given), mostFences)
	default:
		return max(reserve, t.given/2)
	}
}

// refilled takes what a refill was given, unless more is left: the fences of both are the tenure's own.
func (t *tenure) refilled(op *Op, now time.Time) {
	if op.Fence < t.fence { // which is given to nobody yet
		return
	}
	if op.Fenced > t.fenced {
		t.fence, t.fenced = op.Fence, op.Fenced
	}
	if op.Fences > 1 {
		t.given, t.givenAt = t.fenced, now
	}
}

// lose ends the tenure: it is final. It returns what must be done once the shard is unlocked: to tell the holders, and
// only then to let the next of this process in. Where the store has forgotten the lock, that one would be granted it at
// once, and work beside a holder who has not heard yet.
func (t *tenure) lose(why string, cause error) (after func()) {
	if t.state != held && t.state != parked {
		return func() {}
	}
	t.state = lost
	t.loss = cause
	t.locks.watchdog.remove(t)
	h := t.hold
	if h == nil {
		t.gate.drop(t)
		return func() {}
	}
	now := time.Now()
	lost := LostLease{HeldLease: t.describe(now), Reason: why, At: now}
	ended := h.end(cause, why)
	for l := h.leases; l != nil; l = l.sibling {
		l.unbound()
	}
	return func() {
		defer func() {
			t.gate.shard.Lock()
			defer t.gate.shard.Unlock()
			t.bury(h)
		}()
		t.locks.losses.add(lost)
		ended() // first, so that a holder who learns of its loss finds it counted
	}
}

// bury ends the contexts of a lost tenure's leases and takes it out of the gate, at one instant for whoever looks: a
// holder who learns of its loss, from its context or from a call, finds the key free to ask for. The shard is locked.
func (t *tenure) bury(h *hold) {
	for l := h.leases; l != nil; l = l.sibling { // it changes no more
		l.finish(t.loss)
	}
	t.gate.drop(t)
}

// drop takes the tenure out of the gate and of the watchdog's schedule, once.
func (g *gate) drop(t *tenure) {
	t.locks.watchdog.remove(t)
	for i, other := range g.tenures {
		if other != t {
			continue
		}
		last := len(g.tenures) - 1
		g.tenures[i] = g.tenures[last]
		g.tenures[last] = nil
		g.tenures = g.tenures[:last]
		t.locks.live.done()
		g.advance()
		return
	}
}

// end is the single place that ends a hold. It returns what tells the Tracer, for after the shard is unlocked.
func (h *hold) end(cause error, why string) (after func()) {
	if h.ended {
		return func() {}
	}
	h.ended = true
	if h.story == nil {
		return func() {}
	}
	e := HoldEnd{HoldStart: h.start, Mark: h.mark, Held: time.Since(h.began), Cause: cause, Reason: why}
	if !h.told {
		h.late = &e // announce tells both, in order
		return func() {}
	}
	return func() { h.tracer.HoldEnd(e) }
}

// announce tells the Tracer that the hold began, and that it ended if it did meanwhile. No lock is held.
func (h *hold) announce() {
	h.tracer.HoldStart(h.start)
	shard := h.tenure.gate.shard
	shard.Lock()
	h.told = true
	late := h.late
	shard.Unlock()
	if late != nil {
		h.tracer.HoldEnd(*late)
	}
}

// lossError says how a lease was lost.
func lossError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrLost, fmt.Sprintf(format, args...))
}
