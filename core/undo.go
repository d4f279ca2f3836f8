package core

import (
	"context"
	"errors"
	"sync"
	"time"
)

// undoer takes back what nobody wants any more: a Try whose caller left, or whose reply was lost, a Release that did not
// reach the backend, and the place of a waiter that gave up. It compares and deletes, again and again with backoff, until the key is gone or the TTL
// has passed: a command that a stalled connection still holds can land after the first undo.
//
// One timer serves all; there is no goroutine while there is nothing to do.
type undoer struct {
	locks  *Locks
	mu     sync.Mutex
	debts  []*debt
	timer  *time.Timer
	busy   bool
	paying sync.WaitGroup // trips under way
	closed bool
}

// debt is a hold that is to be undone.
type debt struct {
	op    *Op       // the Release or Leave
	until time.Time // the TTL has passed by then
	next  time.Time
	pause time.Duration
	// sure: the hold was granted, or is known to have been; one answer of the backend settles it. Otherwise only
	// a deletion does, since a late command may land after an answer.
	sure bool
}

const (
	// maxDebts bounds what is remembered; past it the oldest is left to its TTL.
	maxDebts   = 16384
	undoPause  = 20 * time.Millisecond
	undoAtMost = 2 * time.Second
)

func newUndoer(locks *Locks) *undoer { return &undoer{locks: locks} }

// settle undoes what a Try may have taken.
func (u *undoer) settle(try *Op) {
	if try.Verdict == Granted {
		u.add(try, true)
	} else if ambiguous(try) {
		u.add(try, false)
	}
}

// ambiguous tells whether the store may have carried out op all the same.
func ambiguous(op *Op) bool {
	return op.Err != nil && !op.Unsent && !errors.Is(op.Err, ErrDenied) && !errors.Is(op.Err, ErrConflict)
}

func (u *undoer) add(of *Op, sure bool) {
	now := time.Now()
	release := &Op{Action: Release, Hold: of.Hold, Owner: of.Owner, Home: of.Home,
		Waiter: u.locks.id}
	u.owe(&debt{op: release, until: now.Add(of.TTL), next: now, pause: undoPause, sure: sure})
}

// leave withdraws a waiter, with the same patience: until the backend has dropped it by itself.
func (u *undoer) leave(op *Op) {
	now := time.Now()
	u.owe(&debt{op: op, until: now.Add(WaiterTTL), next: now, pause: undoPause, sure: true})
}

func (u *undoer) owe(d *debt) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		u.paying.Go(func() { u.pay([]*debt{d}) }) // once; then the TTL
		return
	}
	if len(u.debts) >= maxDebts {
		u.debts = u.debts[1:]
	}
	u.debts = append(u.debts, d)
	u.schedule(d.next)
}

// schedule sets the timer to the debt that is due first. u is locked.
func (u *undoer) schedule(now time.Time) {
	if u.busy || len(u.debts) == 0 || u.closed {
		return
	}
	first := u.debts[0].next
	for _, d := range u.debts {
		first = sooner(first, d.next)
	}
	if u.timer == nil {
		u.timer = time.AfterFunc(first.Sub(now), u.run)
		return
	}
	u.timer.Reset(max(0, first.Sub(now)))
}

// run pays what is due.
func (u *undoer) run() {
	u.mu.Lock()
	if u.busy || u.closed {
		u.mu.Unlock()
		return
	}
	now := time.Now()
	var due, rest []*debt
	for _, d := range u.debts {
		switch {
		case d.next.After(now):
			rest = append(rest, d)
		case len(due) < maxBatch:
			due = append(due, d)
		default:
			rest = append(rest, d)
		}
	}
	u.busy, u.debts = true, rest
	u.paying.Add(1)
	defer u.paying.Done()
	u.mu.Unlock()

	left := u.pay(due)

	u.mu.Lock()
	defer u.mu.Unlock()
	u.busy = false
	u.debts = append(u.debts, left...)
	u.schedule(time.Now())
}

// pay sends the releases, per route, and returns those that are not settled.
func (u *undoer) pay(due []*debt) (left []*debt) {
	ops := make([]*Op, len(due))
	for i, d := range due {
		again := *d.op
		again.Verdict, again.Err, again.Unsent = None, nil, false
		d.op = &again
		ops[i] = d.op
	}
	u.locks.carry(ops, tripLimit)
	now := time.Now()
	for _, d := range due {
		answered := d.op.Err == nil
		if answered && (d.sure || d.op.Verdict == OK) || errors.Is(d.op.Err, ErrDenied) || now.After(d.until) {
			continue
		}
		d.next = now.Add(d.pause)
		d.pause = min(2*d.pause, undoAtMost)
		left = append(left, d)
	}
	return left
}

// close makes one last attempt and forgets the rest, which goes with its TTL. No trip is under way when it returns.
func (u *undoer) close() {
	defer u.paying.Wait()
	u.mu.Lock()
	if u.closed {
		u.mu.Unlock()
		return
	}
	u.closed = true
	if u.timer != nil {
		u.timer.Stop()
	}
	debts := u.debts
	u.debts = nil
	u.mu.Unlock()
	for len(debts) > 0 {
		n := min(len(debts), maxBatch)
		u.pay(debts[:n])
		debts = debts[n:]
	}
}

// carry sends operations that belong to no caller, one batch per route, all routes at once, and waits for the answers.
func (locks *Locks) carry(ops []*Op, limit time.Duration) {
	routes := map[string][]*Op{}
	for _, op := range ops {
		name := locks.backend.Route(op.Key)
		routes[name] = append(routes[name], op)
	}
	var wg sync.WaitGroup
	for _, batch := range routes {
		wg.Go(func() {
			locks.backend.Do(locks.trips.alarms.newTrip(context.Background(), nil, time.Now().Add(limit)), batch)
		})
	}
	wg.Wait()
}
