package fallback

import (
	"context"
	"time"

	"github.com/latchkit/latchkit/core"
)

// serve carries out ops with a closed breaker: in the backend, but for what only this process knows of.
func (n *node) serve(ctx context.Context, ops []*core.Op) {
	if ops[0].All && n.keptOut(ops) {
		return
	}
	travel := ops
	for i, op := range ops {
		if n.atHome(op) {
			if len(travel) == len(ops) {
				travel = append(make([]*core.Op, 0, len(ops)), ops[:i]...)
			}
			continue
		}
		if len(travel) != len(ops) {
			travel = append(travel, op)
		}
	}
	if len(travel) > 0 {
		n.trip(ctx, travel)
	}
}

// keptOut refuses all of ops when this process keeps one of them out.
func (n *node) keptOut(ops []*core.Op) bool {
	for _, op := range ops {
		if r := n.backend.ledger.keepsOut(op, time.Now()); r != nil {
			for _, other := range ops {
				(&refusal{}).apply(other)
			}
			r.apply(op)
			return true
		}
	}
	return false
}

// asWhole gives back what was granted when not all of ops were: they are to be had together or not at all.
func (n *node) asWhole(ops []*core.Op) {
	whole := true
	for _, op := range ops {
		whole = whole && op.Err == nil && op.Verdict == core.Granted
	}
	for _, op := range ops {
		g, ok := op.Home.(*grant)
		switch {
		case op.Err != nil || op.Verdict != core.Granted || !ok:
		case !whole:
			sure := n.backend.ledger.side(g) == there
			n.backend.ledger.remove(g, op, time.Now())
			n.owe(g, sure)
			op.Home = nil
			(&refusal{}).apply(op)
		case op.Degraded:
			n.backend.degraded(Granted, n, op.Key)
		}
	}
}

// atHome answers op if it needs no trip.
func (n *node) atHome(op *core.Op) bool {
	now := time.Now()
	if op.Action == core.Try {
		r := n.backend.ledger.keepsOut(op, now)
		if r != nil {
			r.apply(op)
		}
		return r != nil
	}
	g, ok := op.Home.(*grant)
	if !ok {
		return false
	}
	switch s := n.backend.ledger.side(g); {
	case s != here && s != allowed:
		return false
	case op.Action == core.Release:
		n.releaseHere(op, g, now, true)
	default:
		n.answerHere(op, g, now)
		if op.Action == core.Extend && op.Verdict == core.OK && s == here {
			n.backend.errands.run(func(ctx context.Context) { n.promote(ctx, []*grant{g}) })
		}
	}
	return true
}

// trip takes ops to the backend. If that opens the breaker, or it has opened meanwhile, what failed is served here.
func (n *node) trip(ctx context.Context, ops []*core.Op) {
	for _, op := range ops {
		if g, ok := op.Home.(*grant); ok && op.Action == core.Release {
			// Its holder is done, whatever the backend will say. The backend wakes those who wait, unless they
			// wait for what only this process knew.
			if was := n.backend.ledger.remove(g, op, time.Now()); was.homemade() {
				defer n.backend.watches.wake(op.Key, op.Waiter)
			}
		}
	}
	unserved, sent := n.send(ctx, ops)
	if !sent {
		n.standIn(ops, true)
		return
	}
	for _, op := range ops {
		if op.Err == nil {
			n.answered(op)
		}
	}
	if len(unserved) > 0 && !n.closed() {
		n.standIn(unserved, false)
	}
}

// send takes ops to the backend as one sample of the breaker, and returns those that it could not serve. sent is false
// when the breaker lets nothing pass.
func (n *node) send(ctx context.Context, ops []*core.Op) (unserved []*core.Op, sent bool) {
	done, err := n.breaker.Allow()
	if err != nil {
		return nil, false
	}
	n.carryOut(ctx, ops)
	unserved, sample := n.judge(ctx, ops)
	done(sample)
	return unserved, true
}

// carryOut has the backend do ops, with the Homes that are its own.
func (n *node) carryOut(ctx context.Context, ops []*core.Op) {
	l := n.backend.ledger
	var one [1]*grant
	grants := one[:]
	if len(ops) > 1 {
		grants = make([]*grant, len(ops))
	}
	for i, op := range ops {
		if g, ok := op.Home.(*grant); ok {
			grants[i] = g
			s := l.lock(g.hold.Key)
			op.Home = g.inner
			s.Unlock()
		}
	}
	n.backend.inner.Do(ctx, ops)
	for i, op := range ops {
		if g := grants[i]; g != nil {
			s := l.lock(g.hold.Key)
			g.inner = op.Home
			s.Unlock()
			op.Home = g
		}
	}
}

// answered takes note of what the backend answered.
func (n *node) answered(op *core.Op) {
	l, now := n.backend.ledger, time.Now()
	if op.Action == core.Try {
		if op.Verdict == core.Granted {
			n.adopt(op, now)
		}
		return
	}
	g, ok := op.Home.(*grant)
	switch {
	case !ok, op.Action == core.Release:
	case op.Verdict != core.OK:
		l.remove(g, op, now)
		n.backend.watches.wake(op.Key, "")
	default:
		l.on(g, now, func() {
			if op.Action == core.Extend {
				until := now.Add(op.TTL)
				g.until, g.thereUntil = later(g.until, until), later(g.thereUntil, until)
				if g.side == carried {
					g.side = g.homeSide()
				}
			}
			if g.side != there {
				op.Degraded, op.DegradedReason = true, g.why
			}
		})
	}
}

// adopt makes a grant of the backend one that this process knows of. It gives it back when another engine was granted
// the key here while the trip was under way.
func (n *node) adopt(op *core.Op, now time.Time) {
	g := n.newGrant(op, there, now)
	g.native, g.inner, g.thereUntil = true, op.Home, g.until
	if r := n.backend.ledger.adopt(g, now); r != nil {
		n.owe(g, true)
		r.apply(op)
		op.Home = nil
		return
	}
	op.Home = g
}

func (n *node) newGrant(op *core.Op, s side, now time.Time) *grant {
	return &grant{hold: op.Hold, owner: op.Owner, node: n, side: s, why: n.current().String(), join: op.Join,
		until: now.Add(op.TTL), alone: now}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
