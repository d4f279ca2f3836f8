package core

import "time"

// heartbeat is the time within which an engine with fair waiters says that it lives; it does so thrice, for a beat may be
// late. After a heartbeat of silence those behind it pass it over while the key is free: it has died, as far as anybody
// knows. Its places are dropped after WaiterTTL only, so that one on a machine that stood still for a moment loses a turn
// and not its place.
const (
	heartbeat = WaiterTTL / 5 // as in lua/kinds.lua
	beatEvery = heartbeat / 3
)

// line keeps the places of a gate's fair waiters in the backend. Only the head of the queue tries, but everyone has a
// place from the moment it came, and keeps it for as long as it waits, whoever holds the key and for however long.
//
// The places belong to the engine: whoever leads takes its first. So one that was left behind by a waiter who has gone
// (its withdrawal was lost, or overtaken by its arrival) serves another waiter of this engine, or is dropped with the
// engine's last beat; it is never in anybody's way for longer.
type line struct {
	fresh []*acquisition // who has no place yet
	kick  chan struct{}
}

// standInLine gives a, which was queued just now, a place in line. The shard is locked.
func (locks *Locks) standInLine(g *gate, a *acquisition) {
	locks.holdLine(g)
	g.line.fresh = append(g.line.fresh, a)
	g.line.nudge()
}

// holdLine has the places of the gate's fair waiters kept from now on. The shard is locked.
func (locks *Locks) holdLine(g *gate) {
	if g.line == nil {
		g.line = &line{kick: make(chan struct{}, 1)}
		go locks.keepLine(g, g.line)
	}
}

func (l *line) nudge() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// keepLine runs while the gate has fair waiters.
func (locks *Locks) keepLine(g *gate, l *line) {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		due := false
		select {
		case <-l.kick:
		case <-beat.C:
			due = true
		case <-locks.live.closing:
			return
		}
		who, over := g.takePlaces(l, due)
		if over {
			return
		}
		if len(who) > 0 {
			locks.arrive(g, l, who, due)
		}
	}
}

// takePlaces returns who is to arrive now: those without a place, and on a beat the last of all, whose arrival says
// that the engine lives, and tells whether the backend has forgotten the line: unlike the first, it does not try. The
// line is over when nobody fair is left in the queue.
func (g *gate) takePlaces(l *line, beat bool) (who []*acquisition, over bool) {
	g.shard.Lock()
	defer g.shard.Unlock()
	last := g.queue.tail
	for last != nil && last.ticket == "" {
		last = last.prev
	}
	if last == nil {
		g.line = nil
		return nil, true
	}
	if beat {
		who = append(who, last)
	}
	n := 0
	for _, a := range l.fresh {
		if n++; len(who) == maxBatch {
			n--
			break
		}
		if a.queued {
			who = append(who, a)
		}
	}
	l.fresh = l.fresh[n:]
	if len(l.fresh) == 0 {
		l.fresh = nil
	} else {
		l.nudge() // more in the next batch
	}
	for _, a := range who {
		a.arriving = true
		a.crossed = a.crossed || a.leads && g.flying
	}
	return who, false
}

// arrive makes the trip for who. Those whose arrival is not known stay without a place until the next beat; when the
// backend has forgotten the last, it has forgotten all.
func (locks *Locks) arrive(g *gate, l *line, who []*acquisition, beat bool) {
	ops := make([]*Op, len(who))
	for i, a := range who {
		ops[i] = &Op{Action: Arrive, Hold: a.want, Ticket: a.ticket, Waiter: locks.id}
	}
	locks.carry(ops, time.Now().Add(tripLimit))
	g.shard.Lock()
	defer g.shard.Unlock()
	g.told = true
	var lost []*acquisition
	for i, a := range who {
		a.arriving = false
		switch {
		case !a.queued:
			a.depart(g) // it left while it arrived, or was served: its place would be in others' way
		case ops[i].Err != nil:
			lost = append(lost, a)
		}
	}
	if beat && ops[0].Err == nil && ops[0].Fenced > 0 {
		lost = lost[:0]
		for a := g.queue.head; a != nil; a = a.next {
			if a.ticket != "" {
				lost = append(lost, a)
			}
		}
		l.nudge()
	}
	l.fresh = append(lost, l.fresh...)
}

// quit withdraws a, which has left the queue without the lock. The shard is locked.
func (a *acquisition) quit(g *gate) {
	if !a.quits {
		a.quits = true
		a.depart(g)
	}
}

// depart takes back what the backend knows of a, which has left the queue: its place in line, and with the last of the
// queue the engine's place among those that wait, or readers would be kept out by nobody, and a holder elsewhere would cut
// its hand-offs short. The shard is locked.
func (a *acquisition) depart(g *gate) {
	op := &Op{Action: Leave, Hold: a.want, Ticket: a.ticket}
	if g.queue.len == 0 && g.told {
		op.Waiter, g.told = a.locks.id, false
	}
	if op.Waiter != "" || op.Ticket != "" {
		a.locks.undo.leave(op)
	}
}
