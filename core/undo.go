package core

import (
	"context"
	"errors"
	"sync"
	"time"
)

// undoer takes back what nobody wants any more: a Try whose caller left, or whose reply was lost, a Release that did not
// reach the backend, and the place of a waiter that gave up. It compares and deletes, again and again with backoff, until
// the key is gone or the TTL has passed: a command that a stalled connection still holds can land after the first undo.
//
// One timer serves all; there is no goroutine while there is nothing to do.
type undoer struct {
	locks  *Locks
	mu     sync.Mutex
	debts  []*debt
	timer  *time.Timer
	busy   bool
	paying int        // trips under way
	idle   *sync.Cond // paying is 0
	limit  time.Time  // no trip goes on after it; zero until the engine closes
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

func newUndoer(locks *Locks) *undoer {
	u := &undoer{locks: locks}
	u.idle = sync.NewCond(&u.mu)
	return u
}

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
		if limit := u.limit; time.Now().Before(limit) {
			u.paying++
			go func() {
				defer u.paid()
				u.pay([]*debt{d}, limit) // once; then the TTL
			}()
		}
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
	u.paying++
	limit := now.Add(tripLimit)
	if !u.limit.IsZero() {
		limit = sooner(limit, u.limit)
	}
	u.mu.Unlock()
	defer u.paid()

	left := u.pay(due, limit)

	u.mu.Lock()
	defer u.mu.Unlock()
	u.busy = false
	u.debts = append(u.debts, left...)
	u.schedule(time.Now())
}

// paid notes that a trip has ended.
func (u *undoer) paid() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.paying--; u.paying == 0 {
		u.idle.Broadcast()
	}
}

// pay sends the releases, per route, and returns those that are not settled. It takes until limit at most.
func (u *undoer) pay(due []*debt, limit time.Time) (left []*debt) {
	ops := make([]*Op, len(due))
	for i, d := range due {
		again := *d.op
		again.Verdict, again.Err, again.Unsent = None, nil, false
		d.op = &again
		ops[i] = d.op
	}
	u.locks.carry(ops, limit)
	now := time.Now()
	for _, d := range due {
		answered := d.op.Err == nil
		if answered && d.op.Verdict == OK && d.op.Action == Release {
			u.locks.nudge(d.op.Key)
		}
		if answered && (d.sure || d.op.Verdict == OK) || errors.Is(d.op.Err, ErrDenied) || now.After(d.until) {
			continue
		}
		d.next = now.Add(d.pause)
		d.pause = min(2*d.pause, undoAtMost)
		left = append(left, d)
	}
	return left
}

// bound has all trips end by limit, the last ones included.
func (u *undoer) bound(limit time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.limit = limit
}

// close makes one last attempt, within the bound, and forgets the rest, which goes with its TTL. No trip is under way
// when it returns.
func (u *undoer) close() {
	last, limit := u.shut()
	for len(last) > 0 && time.Now().Before(limit) {
		n := min(len(last), maxBatch)
		u.pay(last[:n], limit)
		last = last[n:]
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for u.paying > 0 {
		u.idle.Wait()
	}
}

// shut has no more trips begin by themselves, and returns what is owed.
func (u *undoer) shut() (debts []*debt, limit time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	if u.timer != nil {
		u.timer.Stop()
	}
	debts, u.debts = u.debts, nil
	return debts, u.limit
}

// carry sends operations that belong to no caller, one batch per route, all routes at once, and waits for the answers.
func (locks *Locks) carry(ops []*Op, limit time.Time) {
	routes := map[string][]*Op{}
	for _, op := range ops {
		name := locks.backend.Route(op.Key)
		routes[name] = append(routes[name], op)
	}
	var wg sync.WaitGroup
	for _, batch := range routes {
		wg.Go(func() { locks.trips.make(context.Background(), nil, limit, batch) })
	}
	wg.Wait()
}
