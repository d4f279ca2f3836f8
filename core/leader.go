package core

import (
	"errors"
	"fmt"
	"time"
)

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
		if a.ticket != "" {
			a.locks.holdLine(g) // the refusal has given it a place
		}
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
