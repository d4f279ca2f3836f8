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
	// closing: nothing is tried again later.
	closing bool
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
	q.action, q.name, q.companion, q.owner, q.engine = d.hold.letter("r"), d.name, d.companion, d.hold.owner, d.engine
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
	if ds.armed || ds.closing {
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
	if !n.debts.armed {
		return // stopped meanwhile
	}
	n.debts.armed = false
	n.payLocked(maxBatch)
	if len(n.debts.later) > 0 {
		n.armLocked(false)
	}
}

func (n *node) payLocked(most int) {
	ds := &n.debts
	due := min(len(ds.later), most)
	for _, d := range ds.later[:due] {
		n.queue = append(n.queue, d)
	}
	ds.later = slices.Delete(ds.later, 0, due)
	n.wakeLocked()
}

// payNow puts all that is owed into the queue, for the last time until forgive.
func (n *node) payNow() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.disarmLocked()
	n.debts.closing = true
	n.payLocked(maxDebts)
}

// forgive forgets what is owed still.
func (n *node) forgive() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.disarmLocked()
	for _, d := range n.debts.later {
		delete(n.debts.owed, d.hold.owner)
	}
	n.debts.later, n.debts.closing = nil, false
}

func (n *node) disarmLocked() {
	n.debts.armed = false
	if n.debts.timer != nil {
		n.debts.timer.Stop()
	}
}
