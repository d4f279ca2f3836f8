package fallback

import (
	"context"
	"time"

	"github.com/latchkit/latchkit/core"
)

// errandBatch bounds a trip in the background.
const errandBatch = 64

// promote writes what was granted here to a backend that is back, to keep other processes out from now on. The same
// owner is used, so an attempt of old that has landed late finds itself.
func (n *node) promote(ctx context.Context, grants []*grant) {
	for len(grants) > 0 && n.closed() && ctx.Err() == nil {
		batch := grants[:min(len(grants), errandBatch)]
		grants = grants[len(batch):]
		ops, chosen := n.promotions(batch)
		if len(ops) == 0 {
			continue
		}
		trip, cancel := context.WithTimeoutCause(ctx, farewellLimit, core.ErrTripTimeout)
		_, sent := n.send(trip, ops)
		cancel()
		for i, g := range chosen {
			n.promotedOr(g, ops[i], sent)
		}
	}
}

// byNode sorts grants by the nodes that serve their keys now: keys move when a master is replaced.
func (b *Backend) byNode(grants []*grant) map[*node][]*grant {
	nodes := make(map[*node][]*grant)
	for _, g := range grants {
		n := b.node(b.inner.Route(g.hold.Key))
		nodes[n] = append(nodes[n], g)
	}
	return nodes
}

// promotions returns a Try for each of grants that is to be written.
func (n *node) promotions(grants []*grant) (ops []*core.Op, chosen []*grant) {
	now := time.Now()
	for _, g := range grants {
		n.backend.ledger.on(g, now, func() {
			left := g.until.Sub(now)
			if g.side != here || g.promoting || left < core.MinTTL {
				return
			}
			g.promoting = true
			op := g.op(core.Try)
			op.TTL, op.Fair, op.Join, op.Fences = left, false, "", 1
			ops, chosen = append(ops, op), append(chosen, g)
		})
	}
	return ops, chosen
}

// promotedOr takes note of the answer to a promotion.
func (n *node) promotedOr(g *grant, op *core.Op, sent bool) {
	b, now := n.backend, time.Now()
	landed := sent && (op.Verdict == core.Granted || op.Err != nil && !op.Unsent)
	overlaps := false
	note := func() {
		g.promoting = false
		switch {
		case !sent:
		case op.Err != nil && !op.Unsent:
			g.thereUntil = later(g.thereUntil, now.Add(op.TTL))
		case op.Verdict == core.Granted:
			g.inner, g.thereUntil = op.Home, now.Add(op.TTL)
			if !g.gone {
				g.side = promoted
			}
		case op.Verdict == core.Refused:
			overlaps, g.overlapped = !g.overlapped, true
		}
	}
	if !b.ledger.on(g, now, note) {
		b.ledger.onGone(g, note)
		if landed {
			n.owe(g, op.Verdict == core.Granted)
		}
		return
	}
	if overlaps {
		b.events.overlap(b, n, g.hold.Key)
		b.degraded(TakenElsewhere, n, g.hold.Key)
	}
}

// debts are releases that the backend has to hear of once it is back: of attempts that may have landed late, and of
// holds that ended while it was away. They are owed until the TTL has passed.
type debts struct {
	list  []*debt
	timer *time.Timer
}

type debt struct {
	grant *grant
	until time.Time
	next  time.Time
	pause time.Duration
	// sure: the key was there, so any answer settles it. Else only a deletion does: a late command may land after
	// an answer.
	sure bool
}

const (
	maxDebts  = 4096
	debtPause = 50 * time.Millisecond
	debtMost  = 2 * time.Second
)

func (d *debts) rest() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// owe remembers that g is to be deleted in the backend, if it can be there.
func (n *node) owe(g *grant, sure bool) {
	now := time.Now()
	until := n.backend.ledger.thereUntil(g)
	if !now.Before(until) {
		return
	}
	n.owes(&debt{grant: g, until: until, next: now, pause: debtPause, sure: sure})
}

func (n *node) owes(d *debt) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.debts.list) >= maxDebts {
		n.debts.list = n.debts.list[1:] // the oldest goes with its TTL
	}
	n.debts.list = append(n.debts.list, d)
	n.payAfter(0)
}

// payAfter sets the timer for the debts. n.mu is locked.
func (n *node) payAfter(d time.Duration) {
	if n.debts.timer != nil || !n.closed() {
		return // a breaker that closes pays
	}
	n.debts.timer = time.AfterFunc(d, func() {
		n.mu.Lock()
		n.debts.timer = nil
		n.mu.Unlock()
		n.backend.errands.run(n.payDebts)
	})
}

// payDebts sends what is due.
func (n *node) payDebts(ctx context.Context) {
	for n.closed() && ctx.Err() == nil {
		due := n.dueDebts()
		if len(due) == 0 {
			return
		}
		if due = n.passOn(due); len(due) == 0 {
			continue
		}
		ops := make([]*core.Op, len(due))
		for i, d := range due {
			ops[i] = n.backend.ledger.release(d.grant)
		}
		trip, cancel := context.WithTimeoutCause(ctx, farewellLimit, core.ErrTripTimeout)
		_, sent := n.send(trip, ops)
		cancel()
		n.settle(due, ops, sent)
	}
}

// passOn gives those debts to their node whose keys have moved, and returns the rest.
func (n *node) passOn(due []*debt) (own []*debt) {
	for _, d := range due {
		if at := n.backend.node(n.backend.inner.Route(d.grant.hold.Key)); at != n {
			at.owes(d)
			continue
		}
		own = append(own, d)
	}
	return own
}

// dueDebts takes up to a batch of what is due off the list, and sets the timer for the rest when nothing is.
func (n *node) dueDebts() (due []*debt) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	rest := n.debts.list[:0]
	first := time.Time{}
	for _, d := range n.debts.list {
		switch {
		case !now.Before(d.until):
		case len(due) < errandBatch && !now.Before(d.next):
			due = append(due, d)
		default:
			rest = append(rest, d)
			if first.IsZero() || d.next.Before(first) {
				first = d.next
			}
		}
	}
	clear(n.debts.list[len(rest):])
	n.debts.list = rest
	if len(due) == 0 && len(rest) > 0 {
		n.payAfter(max(0, first.Sub(now)))
	}
	return due
}

// settle puts back what the answers leave open.
func (n *node) settle(due []*debt, ops []*core.Op, sent bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for i, d := range due {
		op := ops[i]
		if sent && (op.Err == nil && (d.sure || op.Verdict == core.OK) || op.Err != nil && answers(op.Err)) {
			continue
		}
		d.next = now.Add(d.pause)
		d.pause = min(2*d.pause, debtMost)
		n.debts.list = append(n.debts.list, d)
	}
}
