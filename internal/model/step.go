package model

import "fmt"

// Rules says how large the model is, and which rules are left out.
type Rules struct {
	Nodes                 int
	Life                  byte // ticks that a lock lives
	Counters              []byte
	Tries, Losses, Forces byte // how often at most

	NoWriteBack     bool // the greatest fence is not brought to a majority
	NoQuarantine    bool // a node without memory grants at once
	NoRunID         bool // a marker that a snapshot brought back is trusted
	NoDeletion      bool // what was deleted is filled in like what was forgotten
	NoDoubt         bool // what may have run out and been filled in, with the answer lost, counts as if always there
	NoTrace         bool // a force leaves no trace where there is no lock, and that is filled in before it is through
	FilledCounts    bool // what was filled in counts at once
	AnsweringAreAll bool // it is a first start when no node that answers has a marker
}

func (r *Rules) quorum() int { return r.Nodes/2 + 1 }

// start is the first state: all nodes are ready.
func (r *Rules) start() state {
	s := state{Tries: r.Tries, Losses: r.Losses, Forces: r.Forces}
	for i, c := range r.Counters {
		s.Nodes[i].Counter = c
	}
	return s
}

// emit receives a next state: what was done, and what promise it breaks, if any.
type emit func(s state, did, broken string)

// steps calls next for everything that can happen in s.
func (r *Rules) steps(s state, next emit) {
	for c := range clients {
		r.clientSteps(s, c, next)
		for i := range r.Nodes {
			r.exchange(s, c, i, next)
		}
	}
	for i := range r.Nodes {
		r.nodeSteps(s, i, next)
	}
	r.forceSteps(s, next)
	next(r.tick(s), "tick", "")
}

// clientSteps are those that a client takes by itself: begin, end, decide.
func (r *Rules) clientSteps(s state, c int, next emit) {
	switch s.Clients[c].Phase {
	case idle:
		if s.Tries > 0 && !s.owes(c, r.Nodes) {
			s.Tries--
			s.clear(c, r.Nodes)
			for i := range r.Nodes {
				s.Nodes[i].View[c] = view{}
			}
			s.Clients[c] = client{Phase: trying}
			next(s, fmt.Sprintf("client %d tries", c), "")
		}
	case trying:
		r.grant(s, c, next)
		next(r.letGo(s, c), fmt.Sprintf("client %d gives up", c), "")
	case holding:
		renews := s
		renews.clear(c, r.Nodes)
		renews.Clients[c].Phase, renews.Clients[c].Doomed = renewing, s.Clients[c].Forced
		next(renews, fmt.Sprintf("client %d renews", c), "")
		next(r.letGo(s, c), fmt.Sprintf("client %d releases", c), "")
	case renewing:
		r.renewed(s, c, next)
	}
}

// owes tells whether a node is still to be told to let go.
func (s *state) owes(c, n int) bool {
	for i := range n {
		if s.Nodes[i].View[c].Undo {
			return true
		}
	}
	return false
}

// clear forgets the votes.
func (s *state) clear(c, n int) {
	for i := range n {
		s.Nodes[i].View[c].Vote, s.Nodes[i].View[c].Fence = none, 0
	}
}

// letGo ends the client's hold or try; the nodes are told at any time from now on.
func (r *Rules) letGo(s state, c int) state {
	s.Clients[c] = client{}
	s.clear(c, r.Nodes)
	for i := range r.Nodes {
		v := &s.Nodes[i].View[c]
		*v = view{Undo: s.Nodes[i].Owner == byte(c+1)}
	}
	return s
}

// grant hands out the lock if a majority has granted it.
func (r *Rules) grant(s state, c int, next emit) {
	votes, greatest, same := 0, byte(0), map[byte]int{}
	for i := range r.Nodes {
		if v := &s.Nodes[i].View[c]; v.Vote == counts {
			votes++
			greatest = max(greatest, v.Fence)
			same[v.Fence]++
		}
	}
	if votes < r.quorum() {
		return
	}
	fence, agreed := greatest, r.NoWriteBack
	for f, n := range same {
		if n >= r.quorum() {
			fence, agreed = f, true
		}
	}
	if agreed {
		r.hand(s, c, fence, next)
		return
	}
	r.writeBack(s, c, 0, 0, fence, next)
}

// writeBack raises the counters of each majority of nodes that hold the lock.
func (r *Rules) writeBack(s state, c, from, done int, fence byte, next emit) {
	if done == r.quorum() {
		r.hand(s, c, fence, next)
		return
	}
	for i := from; i < r.Nodes; i++ {
		if d := &s.Nodes[i]; d.View[c].Vote == counts && d.Owner == byte(c+1) && d.View[c].Same {
			raised := s
			raised.Nodes[i].Counter = max(d.Counter, fence)
			r.writeBack(raised, c, i+1, done+1, fence, next)
		}
	}
}

func (r *Rules) hand(s state, c int, fence byte, next emit) {
	broken := ""
	switch {
	case s.Clients[1-c].Left > 0 && !s.Clients[1-c].Touched && !s.Clients[c].Touched:
		// One that was taken away by force is told with its next renewal: until then fences keep it out.
		broken = "two clients hold at once"
	case fence <= s.Fence && !s.Clients[c].Touched:
		// One that was taken away by force before it was handed out is rightly behind the next.
		broken = fmt.Sprintf("fence %d after %d", fence, s.Fence)
	}
	s.Fence = max(s.Fence, fence)
	s.clear(c, r.Nodes)
	s.Clients[c] = client{Phase: holding, Left: r.Life, Touched: s.Clients[c].Touched}
	next(s, fmt.Sprintf("client %d is granted the lock with fence %d", c, fence), broken)
}

// renewed ends a round of renewal.
func (r *Rules) renewed(s state, c int, next emit) {
	stand, gone := 0, 0
	for i := range r.Nodes {
		switch s.Nodes[i].View[c].Vote {
		case counts:
			stand++
		case pending:
			if r.FilledCounts {
				stand++
			}
		case removed:
			gone++
		}
	}
	switch {
	case stand >= r.quorum():
		broken := ""
		if s.Clients[c].Doomed {
			broken = "a hold that was taken away by force is prolonged"
		}
		for i := range r.Nodes {
			if v := &s.Nodes[i].View[c]; v.Vote == pending {
				v.Place = kept
			}
		}
		s.clear(c, r.Nodes)
		s.Clients[c].Phase, s.Clients[c].Left, s.Clients[c].Doomed = holding, r.Life, false
		next(s, fmt.Sprintf("client %d has renewed", c), broken)
	case gone > r.Nodes-r.quorum():
		next(r.letGo(s, c), fmt.Sprintf("client %d has lost the lock", c), "")
	default:
		s.clear(c, r.Nodes)
		s.Clients[c].Phase, s.Clients[c].Doomed = holding, false
		next(s, fmt.Sprintf("client %d could not renew", c), "")
	}
}

// exchange is a request of client c that reaches node i, with its answer.
func (r *Rules) exchange(s state, c, i int, next emit) {
	d, v := &s.Nodes[i], &s.Nodes[i].View[c]
	mine := byte(c + 1)
	switch {
	case v.Undo:
		if d.Owner == mine {
			d.Owner, d.Left = 0, 0
		}
		v.Undo = false
		next(s, fmt.Sprintf("node %d lets go of client %d", i, c), "")
	case v.Vote != none:
	case s.Clients[c].Phase == trying:
		if d.Owner != 0 || d.Lost || d.Quarantine > 0 {
			v.Vote = absent
			next(s, fmt.Sprintf("node %d refuses client %d", i, c), "")
			return
		}
		d.Owner, d.Left = mine, r.Life
		d.Counter++
		*v = view{Place: kept, Same: true, Known: r.Life, Vote: counts, Fence: d.Counter}
		next(s, fmt.Sprintf("node %d grants client %d", i, c), "")
		*v = view{Vote: absent}
		next(s, fmt.Sprintf("node %d grants client %d, who never hears of it", i, c), "")
	case s.Clients[c].Phase == renewing:
		knew := *v
		did, broken := r.extend(d, v, mine), ""
		if v.Taken && d.Owner == mine {
			broken = "a lock that was taken away by force is back"
		}
		next(s, fmt.Sprintf("node %d %s client %d", i, did, c), broken)
		if d.Owner == mine {
			*v, v.Vote = knew, absent
			next(s, fmt.Sprintf("node %d %s client %d, who never hears of it", i, did, c), "")
		}
	}
}

// remembered tells whether the client knows that the lock stands at the node unless it was taken away.
func (v *view) remembered() bool {
	return (v.Place == kept || v.Place == filled) && v.Same && v.Known > 0
}

// extend is what a node does with a renewal.
func (r *Rules) extend(d *node, v *view, mine byte) string {
	v.Vote = absent
	remembers := v.remembered()
	switch {
	case d.Lost:
		return "does not know"
	case d.Owner == mine:
		d.Left = r.Life
		switch {
		case v.Place == deleted:
		case v.Place == nowhere || !v.Same:
			v.Place, v.Same, v.Known = filled, true, r.Life
		case v.Place == kept && (remembers || r.NoDoubt):
			v.Known, v.Vote = r.Life, counts
		default:
			v.Place, v.Known, v.Vote = filled, r.Life, pending
		}
		return "extends"
	case (remembers || v.Place == deleted) && (!r.NoDeletion || d.Owner != 0):
		v.Place, v.Vote = deleted, removed
		return "has had taken away"
	case d.Owner != 0:
		v.Place = nowhere
		return "is another's, not of"
	case d.Forced && !r.NoTrace:
		return "is not filled in, during a force, for"
	}
	d.Owner, d.Left = mine, r.Life
	v.Place, v.Same, v.Known = filled, true, r.Life
	if r.FilledCounts {
		v.Vote = pending
	}
	return "is filled in for"
}

// nodeSteps are those of a node: it forgets, and is judged.
func (r *Rules) nodeSteps(s state, i int, next emit) {
	if d := &s.Nodes[i]; d.Lost {
		r.judge(s, i, next)
	} else if s.Losses > 0 && !r.lastMemory(&s, i) {
		s.Losses--
		d.Owner, d.Left, d.Quarantine, d.Counter = 0, 0, 0, 0
		d.Lost = !r.NoRunID
		for c := range clients {
			d.View[c].Same = d.View[c].Same && r.NoRunID
			d.View[c].Taken = false
		}
		next(s, fmt.Sprintf("node %d loses its memory", i), "")
	}
}

// lastMemory tells whether all other nodes have no memory: all losing it at once is the hazard that is documented.
func (r *Rules) lastMemory(s *state, i int) bool {
	for j := range r.Nodes {
		if j != i && !s.Nodes[j].Lost {
			return false
		}
	}
	return true
}

// judge makes a node without memory ready, in quarantine. Its counter starts at the clock, which is ahead of all that was
// given before: "as far as clocks allow".
func (r *Rules) judge(s state, i int, next emit) {
	d, forgot := &s.Nodes[i], 0
	for j := range r.Nodes {
		if s.Nodes[j].Lost {
			forgot++
		}
	}
	d.Lost, d.Quarantine = false, r.Life
	d.Counter = s.clock(r.Nodes)
	if r.NoQuarantine || r.AnsweringAreAll && forgot >= r.quorum() {
		d.Quarantine = 0 // those that remember may not answer
	}
	next(s, fmt.Sprintf("node %d is judged", i), "")
}

// clock returns the greatest fence that any counter or answer has.
func (s *state) clock(n int) byte {
	most := s.Fence
	for i := range n {
		most = max(most, s.Nodes[i].Counter)
		for _, v := range s.Nodes[i].View {
			most = max(most, v.Fence)
		}
	}
	return most
}

// forceSteps are those of an operator who takes the lock away.
func (r *Rules) forceSteps(s state, next emit) {
	if !s.Force {
		if s.Forces == 0 {
			return
		}
		s.Force = true
		s.Forces--
		for c := range clients {
			s.Clients[c].Before = s.Clients[c].Phase >= holding
		}
		next(s, "a force begins", "")
		return
	}
	reached := 0
	for i := range r.Nodes {
		if s.Nodes[i].Forced {
			reached++
		}
	}
	if reached >= r.quorum() {
		for c := range clients {
			s.Clients[c].Forced = s.Clients[c].Forced || s.Clients[c].Before
			s.Clients[c].Before = false
		}
		for i := range r.Nodes {
			s.Nodes[i].Forced = false
		}
		s.Force = false
		next(s, "the force has reached a majority", "")
		return
	}
	for i := range r.Nodes {
		if s.Nodes[i].Forced {
			continue
		}
		forced := s
		d := &forced.Nodes[i]
		if d.Owner > 0 {
			forced.Clients[d.Owner-1].Touched = true
			v := &d.View[d.Owner-1]
			v.Taken = v.remembered()
		}
		d.Forced, d.Owner, d.Left = true, 0, 0
		next(forced, fmt.Sprintf("node %d lets go by force", i), "")
	}
}

// tick lets time pass: the clients' before the nodes'.
func (r *Rules) tick(s state) state {
	for c := range clients {
		switch k := &s.Clients[c]; {
		case k.Phase == trying:
			s = r.letGo(s, c) // what has not been answered is void
		case k.Phase >= holding:
			k.Left--
			k.Phase, k.Doomed = holding, false
			s.clear(c, r.Nodes)
			if k.Left == 0 {
				s = r.letGo(s, c)
			}
		}
	}
	for i := range r.Nodes {
		d := &s.Nodes[i]
		d.Quarantine = max(1, d.Quarantine) - 1
		for c := range d.View {
			v := &d.View[c]
			v.Known = max(1, v.Known) - 1
			v.Taken = v.Taken && v.Known > 0
		}
		if d.Owner == 0 {
			continue
		}
		if d.Left--; d.Left == 0 {
			d.View[d.Owner-1].Undo = false
			d.Owner = 0
		}
	}
	return s
}
