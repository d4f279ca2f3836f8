package core

import (
	"errors"
	"slices"
	"time"
)

// nodeDebts are the locks that a node may have and must not: of attempts that failed, and of releases that did not reach
// it. They are paid from the node's own queue, by comparing and deleting, again with backoff until the node has answered
// at a time after which nothing of the hold can land any more, or until the TTL has passed. One timer serves a node.
type nodeDebts struct {
	owed  map[string]*nodeDebt // by owner
	later []*nodeDebt          // those that wait for the timer
	timer *time.Timer
	armed bool
	pause time.Duration
}

// nodeDebt is one such lock.
type nodeDebt struct {
	hold                    *quorumHold
	name, companion, engine string
	until                   time.Time // the TTL has passed by then
}

// owe has the node let go of the lock, now and until it has.
func (n *node) owe(d *nodeDebt) {
	n.mu.Lock()
	if old := n.debts.owed[d.hold.owner]; old != nil {
		n.mu.Unlock()
		return
	}
	if n.debts.owed == nil {
		n.debts.owed = make(map[string]*nodeDebt)
	}
	if len(n.debts.owed) >= maxDebts {
		n.mu.Unlock()
		return // left to its TTL
	}
	n.debts.owed[d.hold.owner] = d
	n.mu.Unlock()
	n.push([]errand{d})
}

func (d *nodeDebt) request(_ *node, q *request, now time.Time) bool {
	q.action, q.name, q.companion, q.owner, q.engine = "r", d.name, d.companion, d.hold.owner, d.engine
	return !now.After(d.until)
}

func (d *nodeDebt) answer(n *node, a answer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	answered := a.err == nil && d.hold.settled(n.index, a.now)
	if answered || errors.Is(a.err, ErrDenied) || a.err == errTooOld || a.err == errSameServer || time.Now().After(d.until) {
		delete(n.debts.owed, d.hold.owner)
		n.debts.pause = 0
		return
	}
	n.debts.later = append(n.debts.later, d)
	n.armLocked(a.err != nil)
}

// armLocked sets the timer for the next attempt. n is locked.
func (n *node) armLocked(failed bool) {
	ds := &n.debts
	if ds.armed {
		return
	}
	if ds.pause = min(2*ds.pause, undoAtMost); ds.pause == 0 || !failed {
		ds.pause = undoPause
	}
	ds.armed = true
	if ds.timer == nil {
		ds.timer = time.AfterFunc(ds.pause, n.payLater)
		return
	}
	ds.timer.Reset(ds.pause)
}

// payLater puts debts that wait back into the queue, as many as fit one trip.
func (n *node) payLater() {
	n.mu.Lock()
	defer n.mu.Unlock()
	ds := &n.debts
	if !ds.armed {
		return // closed meanwhile
	}
	ds.armed = false
	due := min(len(ds.later), maxBatch)
	for _, d := range ds.later[:due] {
		n.queue = append(n.queue, d)
	}
	ds.later = slices.Delete(ds.later, 0, due)
	if len(ds.later) > 0 {
		n.armLocked(false)
	}
	n.wakeLocked()
}

// close stops the timer: what is owed still goes with its TTL. The node stays usable.
func (n *node) close() {
	n.mu.Lock()
	ds := &n.debts
	ds.armed = false
	if ds.timer != nil {
		ds.timer.Stop()
	}
	for _, d := range ds.later {
		delete(ds.owed, d.hold.owner)
	}
	ds.later = nil
	n.mu.Unlock()
	n.hub.close()
}
