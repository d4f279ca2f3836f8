package core

import (
	"errors"
	"fmt"
	"time"
)

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
	clear := g.queue.len == 0 && !g.leading && g.mayAsk(a)
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
		err := g.busy(a.key, a.locks.clock.now())
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
