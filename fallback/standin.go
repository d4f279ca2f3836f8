package fallback

import (
	"context"
	"fmt"
	"time"

	"github.com/latchkit/latchkit/core"
)

// standIn carries out ops in this process, in place of a backend that is away. unsent: they have not been sent there;
// else each has the error of its trip.
func (n *node) standIn(ops []*core.Op, unsent bool) {
	n.wakeProbe()
	var farewells []*core.Op
	for _, op := range ops {
		now := time.Now()
		g, known := op.Home.(*grant)
		switch {
		case op.Action == core.Try:
			n.grantHere(op, now, unsent || op.Unsent)
		case op.Action == core.Leave, op.Action == core.Arrive: // there are no places in line here
			if op.Action == core.Leave {
				n.backend.ledger.forget(op.Key, op.Waiter, now)
			}
			clearReply(op)
			op.Verdict = core.OK
		case !known:
			// It undoes what an attempt may have taken; the engine comes back with it until that is answered.
			n.postpone(op, unsent)
		case op.Action == core.Release:
			if n.releaseHere(op, g, now, unsent) {
				farewells = append(farewells, op)
			}
		default:
			n.keepUp(op, g, now, unsent)
		}
	}
	if len(farewells) > 0 {
		n.farewell(farewells)
	}
}

// postpone fails an operation that only the backend can carry out.
func (n *node) postpone(op *core.Op, unsent bool) {
	if unsent {
		n.refuse(op, "")
	}
}

// refuse says that the operation was not carried out, for want of the backend.
func (n *node) refuse(op *core.Op, why string) {
	clearReply(op)
	op.Err, op.Unsent = n.unavailable(), true
	if why != "" {
		op.Err = fmt.Errorf("%w: %s", op.Err, why)
	}
}

// grantHere answers a Try by the policy. One that was sent and has no answer may still be carried out there; it is
// undone once it is known not to be needed.
func (n *node) grantHere(op *core.Op, now time.Time, unsent bool) {
	b := n.backend
	g := n.newGrant(op, here, now)
	if !unsent {
		g.thereUntil = g.until
	}
	if op.Join != "" && b.settings.policy != Allow && !b.ledger.knows(op.Key, op.Join, now) {
		n.postpone(op, unsent) // only the backend knows the hold that it takes part in
		return
	}
	var no *refusal
	if b.settings.policy == Allow {
		g.side = allowed
	} else if left := n.draining(now); left > 0 {
		if op.Waiter == "" {
			n.postpone(op, unsent) // nobody is known to hold the key, so it is not busy
			return
		}
		no = &refusal{left: left}
	} else {
		no = b.ledger.take(g, op.Waiter, now)
	}
	if no != nil {
		n.owe(g, false)
		no.apply(op)
		return
	}
	clearReply(op)
	op.Verdict, op.Home = core.Granted, g
	op.Degraded, op.DegradedReason = true, g.why
	op.Open = b.settings.policy == Allow
	if !op.All {
		b.degraded(Granted, n, op.Key)
	}
}

// keepUp answers an Extend or a Refill.
func (n *node) keepUp(op *core.Op, g *grant, now time.Time, unsent bool) {
	native := n.backend.ledger.side(g) == there
	switch {
	case native && op.Action == core.Refill:
		// It has the fences that it had, until its renewal.
		clearReply(op)
		op.Verdict, op.Outside = core.OK, true
	case native && n.backend.settings.dropLeases:
		n.postpone(op, unsent)
	default:
		if op.Action == core.Extend && !unsent && !op.Unsent {
			n.backend.ledger.mayLast(g, now.Add(op.TTL)) // it may have been carried out there
		}
		n.answerHere(op, g, now)
	}
}

// answerHere answers an Extend or a Refill of a hold that this process answers for, or comes to with a first Extend.
// It gives no fences and always tells of outside waiters, so that nobody hands such a hold on.
func (n *node) answerHere(op *core.Op, g *grant, now time.Time) {
	clearReply(op)
	op.Verdict, op.Degraded, op.Outside = core.OK, true, true
	crossed, tooLong := false, ""
	alive := n.backend.ledger.on(g, now, func() {
		defer func() { op.DegradedReason = g.why }()
		if op.Action != core.Extend {
			return
		}
		alone := g.alone
		if crossed = g.side == there || g.side == promoted; crossed {
			alone = now
		}
		until, most := now.Add(op.TTL), n.backend.settings.maxLocalHold
		if most > 0 && until.After(alone.Add(most)) {
			crossed, tooLong = false, fmt.Sprintf("a hold without it may take %v", most)
			return
		}
		if crossed {
			g.side, g.alone, g.why = carried, now, n.current().String()
		}
		g.until = later(g.until, until)
	})
	switch {
	case !alive:
		clearReply(op)
		op.Verdict = core.Absent
	case tooLong != "":
		n.refuse(op, tooLong)
	case crossed:
		n.backend.degraded(CarriedOver, n, op.Key)
	}
}

// releaseHere ends a hold in this process. It tells whether the backend has to hear of it before the holder does: of a
// hold that only the backend has granted.
func (n *node) releaseHere(op *core.Op, g *grant, now time.Time, unsent bool) (farewell bool) {
	was := n.backend.ledger.remove(g, op, now)
	n.backend.watches.wake(op.Key, op.Waiter)
	owed := now.Before(was.thereUntil)
	if was.side == there && owed {
		return unsent // else it was just tried
	}
	clearReply(op)
	op.Verdict = core.OK
	if was.gone && !was.released {
		op.Verdict = core.Absent
	}
	if owed && (!was.released || !unsent) {
		n.owe(g, false)
	}
	return false
}

const (
	// patience is for how long a release waits for a backend whose breaker is open.
	patience      = 20 * time.Millisecond
	farewellLimit = 500 * time.Millisecond
)

// farewell takes releases to the backend although the breaker is open. Whoever waits for it holds up the node's other
// operations, so it takes a moment at most, and once the backend has not answered nobody tries again until the breaker
// has moved. The engine then comes back with them until they are answered or the TTL has passed.
func (n *node) farewell(ops []*core.Op) {
	if n.deaf.Load() {
		for _, op := range ops {
			n.refuse(op, "")
		}
		return
	}
	copies := make([]*core.Op, len(ops))
	for i, op := range ops {
		again := *op
		clearReply(&again)
		copies[i] = &again
	}
	answer := make(chan error, 1)
	n.backend.errands.run(func(bg context.Context) {
		trip, cancel := context.WithTimeoutCause(bg, farewellLimit, core.ErrTripTimeout)
		defer cancel()
		n.carryOut(trip, copies)
		_, sample := n.judge(trip, copies)
		answer <- sample
	})
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case sample := <-answer:
		if sample != nil {
			n.deaf.Store(true)
		}
		for i, op := range ops {
			op.Home = copies[i].Home
			setReply(op, *copies[i])
		}
		return
	case <-limit.C:
		n.deaf.Store(true)
	}
	for _, op := range ops {
		n.refuse(op, fmt.Sprintf("no answer to a release within %v", patience))
		op.Unsent = false
	}
}
