package core

import (
	"errors"
	"fmt"
	"time"
)

// queue is a list of acquisitions in order of arrival.
type queue struct {
	head, tail *acquisition
	len        int
}

func (q *queue) push(a *acquisition) {
	a.queued = true
	q.len++
	if q.tail == nil {
		q.head, q.tail = a, a
		return
	}
	a.prev, q.tail.next = q.tail, a
	q.tail = a
}

func (q *queue) remove(a *acquisition) {
	if !a.queued {
		return
	}
	a.queued = false
	q.len--
	if a.prev != nil {
		a.prev.next = a.next
	} else {
		q.head = a.next
	}
	if a.next != nil {
		a.next.prev = a.prev
	} else {
		q.tail = a.prev
	}
	a.prev, a.next = nil, nil
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
	var began time.Time
	if a.tracer != nil { // looking at the clock is a tenth of what a hand-off costs
		began = time.Now()
	}
	t, why := a.await()
	if a.tracer != nil {
		a.stats.inGate += time.Since(began)
	}
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

// await waits for the turn, or until there is a reason to wait no more. Who waits for ever, under a context that does not
// end, does without a select, which costs twice as much as to receive.
func (a *acquisition) await() (t turn, why error) {
	if a.until.IsZero() && a.ctx.Done() == nil {
		return <-a.ready, nil
	}
	select {
	case t = <-a.ready:
	case <-a.ctx.Done():
		why = a.ctx.Err()
	case <-a.alarm():
		why = errWaitSpent
	}
	return t, why
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
