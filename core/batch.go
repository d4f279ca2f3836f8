package core

import (
	"context"
	"fmt"
	"runtime"
	"slices"
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
	away    [][]*call // the batches that are under way
	sweeper *time.Timer
	sweepAt time.Time // no call that is open has an earlier limit; zero: no sweep will come
}

// call is an operation among others.
type call struct {
	op     *Op
	values context.Context
	limit  time.Time
	done   chan struct{} // one slot; used again
	gone   bool          // guarded by the route: the caller has left, or is told to, and the operation belongs to the trip
}

// await waits for the answer, or until caller, which may be nil, has ended. Most cannot, and a select costs twice as much
// as to receive.
func (c *call) await(caller context.Context) error {
	if caller == nil || caller.Done() == nil {
		<-c.done
		return nil
	}
	select {
	case <-c.done:
		return nil
	case <-caller.Done():
		return caller.Err()
	}
}

func newTrips(b Backend, undo *undoer) *trips {
	ts := &trips{backend: b, undo: undo, routes: make(map[string]*route), alarms: alarmClock{start: time.Now()}}
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

// make makes a trip, by limit at the latest, under the values of values and for caller, which may be nil.
func (ts *trips) make(values, caller context.Context, limit time.Time, ops []*Op) {
	ts.travel(ts.alarms.newTrip(values, caller, limit), ops)
}

// travel is the only place in which the engine calls the Backend for holds. What is left without an answer is unknown,
// and says so.
func (ts *trips) travel(trip *tripContext, ops []*Op) {
	ts.backend.Do(trip, ops)
	for _, op := range ops {
		if op.Err == nil && op.Verdict == None {
			op.Err = fmt.Errorf("%w: the backend %q left a %v without an answer", ErrUnavailable, ts.backend.Name(), op.Action)
		}
	}
}

// do carries out op, by limit at the latest, under the values of values. It returns the answered operation, with a
// verdict or an error of its own: op, or when op's batch has not come back by limit, another that says so. An error means
// that caller, which may be nil, has ended first. What is not returned must not be touched any more: it was withdrawn
// unsent, or whatever it takes is undone when the trip comes back.
func (ts *trips) do(values, caller context.Context, op *Op, limit time.Time) (*Op, error) {
	if op.Replicas > 0 && op.Action == Try {
		// It waits for replicas, and would hold up those that do not.
		return ts.single(values, caller, op, limit, nil)
	}
	r := ts.route(op.Key)
	r.mu.Lock()
	if r.flying < loneTrips {
		r.flying++
		r.mu.Unlock()
		return ts.single(values, caller, op, limit, r)
	}
	c := ts.calls.Get().(*call)
	c.op, c.values, c.limit, c.gone = op, values, limit, false
	r.waiting = append(r.waiting, c)
	r.watchLimit(limit)
	r.mu.Unlock()
	if err := c.await(caller); err != nil {
		return r.abandon(c, err)
	}
	if c.gone { // the batch is on its way for longer than this one call may be
		return &Op{Action: op.Action, Hold: op.Hold, Owner: op.Owner, Unsent: op.Action == Try, // undone when its trip comes back
			Err: fmt.Errorf("%w: not answered within %v: %w", ErrUnavailable, tripLimit, ErrTripTimeout)}, nil
	}
	c.op, c.values = nil, nil
	ts.calls.Put(c)
	return op, nil
}

// single makes the trip for one operation in its caller's goroutine and under its context.
func (ts *trips) single(values, caller context.Context, op *Op, limit time.Time, r *route) (*Op, error) {
	answered := false
	defer func() {
		if r != nil {
			r.land()
		}
		if !answered && op.Action == Try { // the Backend has panicked
			ts.undo.add(op, false)
		}
	}()
	trip := ts.alarms.newTrip(values, caller, limit)
	trip.lone[0] = op
	ts.travel(trip, trip.lone[:])
	answered = true
	if op.Action != Try {
		return op, nil
	}
	if err := ended(caller); err != nil {
		ts.undo.settle(op)
		return nil, err
	}
	return op, nil
}

// abandon withdraws a call whose caller has ended because of cause.
func (r *route) abandon(c *call, cause error) (*Op, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.gone {
		return nil, cause // the trip has it
	}
	select {
	case <-c.done: // answered in the same moment
		if c.op.Action != Try {
			return c.op, nil
		}
		r.trips.undo.settle(c.op)
		return nil, cause
	default:
	}
	c.gone = true
	if i := slices.Index(r.waiting, c); i >= 0 {
		r.waiting = slices.Delete(r.waiting, i, i+1)
	}
	return nil, cause
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
		runtime.Gosched() // so that those who were answered can be among the next
	}
}

// gather takes the next batch off the queue. What has waited past its limit fails unsent. The route is locked.
func (r *route) gather(now time.Time) []*call {
	r.waiting = r.timely(r.waiting, now)
	n := min(len(r.waiting), maxBatch)
	batch := slices.Clone(r.waiting[:n])
	r.waiting = slices.Delete(r.waiting, 0, n)
	if n > 0 {
		r.away = append(r.away, batch)
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
	r.trips.make(values, nil, limit, ops)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = slices.DeleteFunc(r.away, func(other []*call) bool { return other[0] == batch[0] })
	for _, c := range batch {
		if !c.gone {
			c.done <- struct{}{}
		} else if c.op.Action == Try {
			r.trips.undo.settle(c.op)
		}
	}
}
