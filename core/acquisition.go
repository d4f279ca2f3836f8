package core

import (
	"context"
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
	stays  bool // in the queue for as long as somebody of this process is in its way: see mayAsk
	quits  bool // it has left without the lock, and what the backend knows of it is withdrawn
	// arriving: an Arrive is on its way; crossed: one was while an attempt was. Guarded by the shard.
	arriving, crossed bool
	timer             *time.Timer

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
		a.began = a.locks.clock.now()
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
