package core

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// watch is a queue's subscription to the releases of others. It outlives the leader that asked for it.
type watch struct {
	wake   chan struct{} // one slot: a release that nobody has looked into yet
	stands bool          // false: the backend cannot tell, the queue polls
	stop   func()

	mu   sync.Mutex
	fair bool        // the leader stands in line
	back *time.Timer // nudges when the leader has held back for long enough
}

// drain forgets the releases that came before the attempt that is made now, by a leader that is fair or not.
func (w *watch) drain(fair bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fair = fair
	if w.back != nil {
		w.back.Stop()
	}
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

// holdBack nudges a moment later, unless there is another release by then: it is another engine's turn. Where each gets
// its turn in time, the others' leaders try once in a round, and not at each release. One that stands in line has no turn
// but by the line, and would hold back for as long as others take turns: it does not.
func (w *watch) holdBack() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fair {
		w.nudge()
		return
	}
	pause := 2*handOffChain + rand.N(2*handOffChain)
	if w.back == nil {
		w.back = time.AfterFunc(pause, w.nudge)
		return
	}
	w.back.Reset(pause)
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
	w := &watch{wake: make(chan struct{}, 1), stop: func() {}, fair: a.want.Fair}
	if watcher, ok := a.locks.backend.(Watcher); ok {
		limit := time.Now().Add(tripLimit)
		if !a.until.IsZero() {
			limit = sooner(limit, a.until)
		}
		ctx, cancel := context.WithDeadlineCause(a.trip, limit, ErrTripTimeout)
		own := a.locks.id // the watch outlives a
		stop, err := watcher.Watch(ctx, a.want.Key, func(by, next string) {
			switch {
			case by == own: // our own release: its next is told by the gate, and others go first
			case next == "" || next == own:
				w.nudge()
			default:
				w.holdBack()
			}
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
