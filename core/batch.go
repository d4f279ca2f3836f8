package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// tripLimit bounds a trip to the backend, retries included, whatever the caller's context and the client's settings
// allow.
const tripLimit = 2 * time.Second

// ErrTripTimeout is the cause of a trip's context when the engine's own limit has ended it, and not its caller. A
// Backend that tells failures of the store from impatient callers looks for it: context.Cause(ctx).
var ErrTripTimeout = errors.New("latchkit: trip to the backend took too long")

const (
	// loneTrips is how many operations on one route travel alone, each in its caller's goroutine, before the rest
	// gather into batches. A worker in between would cost a lone caller two switches.
	loneTrips = 3
	// maxBatch bounds a batch, and so for how long one script keeps the server.
	maxBatch = 256
)

// trips carries operations to the backend. While trips on a route are under way, the operations of all other
// goroutines gather, and go out together as one batch when one comes back.
type trips struct {
	backend Backend
	undo    *undoer
	mu      sync.RWMutex
	routes  map[string]*route
}

type route struct {
	trips   *trips
	mu      sync.Mutex
	flying  int
	waiting []*call
}

// call is an operation among others.
type call struct {
	op    *Op
	ctx   context.Context
	limit time.Time
	done  chan struct{}
	// Guarded by the route: gone means that the caller has left and the operation belongs to the trip.
	gone bool
}

func newTrips(b Backend, undo *undoer) *trips {
	return &trips{backend: b, undo: undo, routes: make(map[string]*route)}
}

func (ts *trips) route(key string) *route {
	name := ts.backend.Route(key)
	ts.mu.RLock()
	r := ts.routes[name]
	ts.mu.RUnlock()
	if r != nil {
		return r
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if r = ts.routes[name]; r == nil {
		r = &route{trips: ts}
		ts.routes[name] = r
	}
	return r
}

// do carries out op, at the latest by limit. nil: op is answered, with a verdict or an error of its own. Otherwise ctx
// has ended first, and op must not be touched any more: it was withdrawn unsent, or whatever it takes is undone when
// the trip comes back.
func (ts *trips) do(ctx context.Context, op *Op, limit time.Time) error {
	r := ts.route(op.Key)
	r.mu.Lock()
	if r.flying < loneTrips {
		r.flying++
		r.mu.Unlock()
		return r.alone(ctx, op, limit)
	}
	c := &call{op: op, ctx: ctx, limit: limit, done: make(chan struct{})}
	r.waiting = append(r.waiting, c)
	r.mu.Unlock()
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
	}
	return r.abandon(c)
}

// alone makes the trip for one operation in its caller's goroutine and under its context.
func (r *route) alone(ctx context.Context, op *Op, limit time.Time) error {
	trip, cancel := context.WithDeadlineCause(ctx, limit, ErrTripTimeout)
	r.trips.backend.Do(trip, []*Op{op})
	cancel()
	r.land()
	if err := ctx.Err(); err != nil && op.Action == Try {
		r.trips.undo.settle(op)
		return err
	}
	return nil
}

// abandon withdraws a call whose caller has gone.
func (r *route) abandon(c *call) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-c.done: // answered in the same moment
		if c.op.Action == Try {
			r.trips.undo.settle(c.op)
			return c.ctx.Err()
		}
		return nil
	default:
	}
	c.gone = true
	for i, other := range r.waiting {
		if other == c {
			r.waiting = append(r.waiting[:i], r.waiting[i+1:]...)
			break
		}
	}
	return c.ctx.Err()
}

// land is called when a trip comes back: those who gathered meanwhile go next.
func (r *route) land() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		r.flying--
		return
	}
	go r.serve()
}

// serve makes trips for those who have gathered until nobody is left.
func (r *route) serve() {
	for {
		r.mu.Lock()
		batch := r.gather(time.Now())
		if len(batch) == 0 {
			r.flying--
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		r.together(batch)
	}
}

// gather takes the next batch off the queue. What has waited past its limit fails unsent. The route is locked.
func (r *route) gather(now time.Time) []*call {
	n := min(len(r.waiting), maxBatch)
	batch := make([]*call, 0, n)
	for _, c := range r.waiting[:n] {
		if !now.Before(c.limit) {
			c.op.Err = fmt.Errorf("%w: not sent within %v: %w", ErrUnavailable, tripLimit, ErrTripTimeout)
			c.op.Unsent = true
			close(c.done)
			continue
		}
		batch = append(batch, c)
	}
	rest := copy(r.waiting, r.waiting[n:])
	clear(r.waiting[rest:])
	r.waiting = r.waiting[:rest]
	if len(batch) == 0 && rest > 0 {
		return r.gather(now)
	}
	return batch
}

// together makes one trip for a batch. No single caller's context governs it; a batch of one has its caller's values,
// so that its spans have a parent.
func (r *route) together(batch []*call) {
	ops := make([]*Op, len(batch))
	limit := batch[0].limit
	for i, c := range batch {
		ops[i] = c.op
		if c.limit.After(limit) {
			limit = c.limit
		}
	}
	base := context.Background()
	if len(batch) == 1 {
		base = context.WithoutCancel(batch[0].ctx)
	}
	ctx, cancel := context.WithDeadlineCause(base, limit, ErrTripTimeout)
	r.trips.backend.Do(ctx, ops)
	cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range batch {
		close(c.done)
		if c.gone && c.op.Action == Try {
			r.trips.undo.settle(c.op)
		}
	}
}
