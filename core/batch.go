package core

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// loneTrips is how many operations on one route travel alone, each in its caller's goroutine, before the rest
	// gather into batches. A worker in between would cost a lone caller two switches.
	loneTrips = 2
	// maxBatch bounds a batch, and so for how long one script keeps the server.
	maxBatch = 256
)

// trips carries operations to the backend. While trips on a route are under way, the operations of all other
// goroutines gather, and go out together as one batch when one comes back.
type trips struct {
	backend Backend
	undo    *undoer
	alarms  alarmClock
	calls   sync.Pool // of *call
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
	op     *Op
	values context.Context
	limit  time.Time
	done   chan struct{} // one slot; used again
	gone   bool          // guarded by the route: the caller has left, and the operation belongs to the trip
}

func newTrips(b Backend, undo *undoer) *trips {
	ts := &trips{backend: b, undo: undo, routes: make(map[string]*route)}
	ts.calls.New = func() any { return &call{done: make(chan struct{}, 1)} }
	return ts
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

// do carries out op, at the latest by limit, under the values of values. nil: op is answered, with a verdict or an error
// of its own. Otherwise caller, which may be nil, has ended first, and op must not be touched any more: it was withdrawn
// unsent, or whatever it takes is undone when the trip comes back.
func (ts *trips) do(values, caller context.Context, op *Op, limit time.Time) error {
	if op.Replicas > 0 && op.Action == Try {
		// It waits for replicas, and would hold up those that do not.
		return ts.single(values, caller, op, limit, func() {})
	}
	r := ts.route(op.Key)
	r.mu.Lock()
	if r.flying < loneTrips {
		r.flying++
		r.mu.Unlock()
		return ts.single(values, caller, op, limit, r.land)
	}
	c := ts.calls.Get().(*call)
	c.op, c.values, c.limit, c.gone = op, values, limit, false
	r.waiting = append(r.waiting, c)
	r.mu.Unlock()
	var ended <-chan struct{}
	if caller != nil {
		ended = caller.Done()
	}
	select {
	case <-c.done:
		c.op, c.values = nil, nil
		ts.calls.Put(c)
		return nil
	case <-ended:
	}
	return r.abandon(c, caller.Err())
}

// single makes the trip for one operation in its caller's goroutine and under its context.
func (ts *trips) single(values, caller context.Context, op *Op, limit time.Time, land func()) error {
	one := [1]*Op{op}
	ts.backend.Do(ts.alarms.newTrip(values, caller, limit), one[:])
	land()
	if op.Action != Try {
		return nil
	}
	err := ended(caller)
	if err != nil {
		ts.undo.settle(op)
	}
	return err
}

// abandon withdraws a call whose caller has gone because of cause.
func (r *route) abandon(c *call, cause error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-c.done: // answered in the same moment
		if c.op.Action != Try {
			return nil
		}
		r.trips.undo.settle(c.op)
		return cause
	default:
	}
	c.gone = true
	for i, other := range r.waiting {
		if other == c {
			r.waiting = append(r.waiting[:i], r.waiting[i+1:]...)
			break
		}
	}
	return cause
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
			c.done <- struct{}{}
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
	ops := make([]*Op, 0, len(batch))
	limit := batch[0].limit
	for _, c := range batch {
		ops = append(ops, c.op)
		if c.limit.After(limit) {
			limit = c.limit
		}
	}
	values := context.Background()
	if len(batch) == 1 {
		values = batch[0].values
	}
	r.trips.backend.Do(r.trips.alarms.newTrip(values, nil, limit), ops)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range batch {
		if !c.gone {
			c.done <- struct{}{}
		} else if c.op.Action == Try {
			r.trips.undo.settle(c.op)
		}
	}
}
