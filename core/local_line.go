package core

import (
	"slices"
	"time"
)

// localLine is where fair waiters stand in order of arrival. A ticket counts while its engine is alive: one that has
// been silent for a heartbeat is passed over, and dropped when it has not been heard of for WaiterTTL.
type localLine struct {
	tickets []localTicket
	alive   map[string]time.Time // by engine
}

type localTicket struct {
	ticket string
	kind   Kind
}

// engineOfTicket is the engine whose ticket it is.
func engineOfTicket(ticket string) string { return ticket[:len(ticket)/2] }

// place finds the place of op's engine: its first ticket, "" when it has none, and how many of op's kind stand before
// it. It does not stand when somebody alive of another kind does, or when op is not fair.
func (l *localLine) place(op *Op, now time.Time) (first string, ahead int, stands bool) {
	if !op.Fair {
		return "", 0, true
	}
	l.tickets = slices.DeleteFunc(l.tickets, func(t localTicket) bool {
		return !now.Before(l.alive[engineOfTicket(t.ticket)])
	})
	for _, t := range l.tickets {
		switch {
		case engineOfTicket(t.ticket) == op.Waiter:
			return t.ticket, ahead, true
		case !now.Before(l.alive[engineOfTicket(t.ticket)].Add(heartbeat - WaiterTTL)):
			continue
		case op.Kind == Exclusive || t.kind != op.Kind:
			return "", ahead, false
		}
		ahead++
	}
	return "", ahead, true
}

// arrive puts op's ticket in line and says that its engine lives; it tells whether the ticket was not there.
func (l *localLine) arrive(op *Op, now time.Time) (arrived bool) {
	if l.alive == nil {
		l.alive = make(map[string]time.Time)
	}
	l.alive[engineOfTicket(op.Ticket)] = now.Add(WaiterTTL)
	if l.find(op.Ticket) >= 0 {
		return false
	}
	l.tickets = append(l.tickets, localTicket{op.Ticket, op.Kind})
	return true
}

// leave takes the ticket out of the line. The one at first, if it is another, takes the place that it had. It tells
// whether the ticket was the first of all.
func (l *localLine) leave(ticket, first string) (wasFirst bool) {
	if ticket == "" {
		return false
	}
	own, at := l.find(ticket), l.find(first)
	if own < 0 && at >= 0 {
		moved := l.tickets[at]
		l.tickets = append(slices.Delete(l.tickets, at, at+1), moved)
		return false
	}
	if own < 0 {
		return false
	}
	if at >= 0 && at != own {
		moved := l.tickets[at]
		l.tickets[own] = moved
		own = at
	}
	l.tickets = slices.Delete(l.tickets, own, own+1)
	return own == 0
}

func (l *localLine) find(ticket string) int {
	return slices.IndexFunc(l.tickets, func(t localTicket) bool { return ticket != "" && t.ticket == ticket })
}
