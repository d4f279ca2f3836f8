package core

import (
	"context"
	"time"
)

// watch is a queue's subscription to the releases of others. It outlives the leader that asked for it.
type watch struct {
	wake   chan struct{} // one slot: a release that nobody has looked into yet
	stands bool          // false: the backend cannot tell, the queue polls
	stop   func()
}

func (w *watch) drain() {
	select {
	case <-w.wake:
	default:
	}
}

func (w *watch) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// nudge has the leader of key's queue look again, for an undo may have freed it: waiters do not listen to their own
// engine.
func (locks *Locks) nudge(key string) {
	shard := locks.gates.shard(key)
	shard.Lock()
	defer shard.Unlock()
	if g := shard.gates[key]; g != nil && g.watch != nil {
		g.watch.nudge()
	}
}

// subscribe gives the gate its watch. When it stands, a try made from now on cannot miss a release.
func (a *acquisition) subscribe(g *gate) *watch {
	w := &watch{wake: make(chan struct{}, 1), stop: func() {}}
	if watcher, ok := a.locks.backend.(Watcher); ok {
		limit := time.Now().Add(tripLimit)
		if !a.until.IsZero() {
			limit = sooner(limit, a.until)
		}
		ctx, cancel := context.WithDeadlineCause(a.trip, limit, ErrTripTimeout)
		own := a.locks.id // the watch outlives a
		stop, err := watcher.Watch(ctx, a.want.Key, func(by string) {
			if by == own {
				return // our own release: its next is told by the gate, and others go first
			}
			w.nudge()
		})
		cancel()
		if err == nil {
			w.stands, w.stop = true, stop
		}
	}
	g.shard.Lock()
	defer g.shard.Unlock()
	if w.stands { // else the next pause tries again
		g.watch = w
	}
	return w
}
