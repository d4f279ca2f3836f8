package core

import (
	"math/rand/v2"
	"time"
)

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
