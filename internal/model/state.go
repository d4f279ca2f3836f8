package model

import (
	"bytes"
	"slices"
)

const (
	maxNodes = 5
	clients  = 2
)

// place is what a client knows of its hold at a node.
type place byte

const (
	nowhere place = iota
	filled        // put there after the grant: does not count yet
	kept          // there since the grant
	deleted       // it was taken away, and the node remembers: never filled in
)

// vote is what a node's answer in the current round means.
type vote byte

const (
	none    vote = iota // it has not been asked
	absent              // no grant, or not there for a reason that proves nothing
	counts              // granted, or there all the time
	pending             // there, but filled in: counts from the next round
	removed             // taken away
)

// node is one server, with what each client knows of it.
type node struct {
	Owner      byte // 0: nobody; else the client's number and 1
	Left       byte // ticks until the lock expires
	Lost       bool // it has no memory, and was not judged yet
	Quarantine byte // ticks for which it grants nothing new
	Counter    byte
	Forced     bool // the force in progress has been here
	View       [clients]view
}

type view struct {
	Place place
	Same  bool // the node has not lost its memory since the lock got there
	Known byte // ticks for which the lock does not run out there, as far as the client knows
	Vote  vote
	Fence byte // the node's answer to a try
	Taken bool // a force took it away there before its time, which has not passed yet, nor has the node lost its memory
	Undo  bool // the node is still to be told to let go
}

type phase byte

const (
	idle phase = iota
	trying
	holding
	renewing
)

type client struct {
	Phase   phase
	Left    byte // ticks for which its hold is valid
	Touched bool // by a force, at one node at least
	Doomed  bool // it was taken away by force before the current round began
	Forced  bool // it was taken away by force
	Before  bool // it held when the force in progress began
}

// state is one state of the model. It is comparable, and the order of nodes does not matter.
type state struct {
	Nodes   [maxNodes]node
	Clients [clients]client
	Fence   byte // the greatest that was granted
	Tries   byte // how many are left
	Losses  byte
	Forces  byte
	Force   bool // one is in progress
}

// canonical returns the state that stands for all that differ by the order of nodes and clients.
func (s state) canonical(n int) state {
	a := s.sorted(n)
	b := s.swapped(n).sorted(n)
	if compare(&b, &a, n) < 0 {
		return b
	}
	return a
}

func (s state) sorted(n int) state {
	slices.SortFunc(s.Nodes[:n], func(a, b node) int {
		x, y := a.bytes(), b.bytes()
		return bytes.Compare(x[:], y[:])
	})
	return s
}

// swapped exchanges the clients.
func (s state) swapped(n int) state {
	s.Clients[0], s.Clients[1] = s.Clients[1], s.Clients[0]
	for i := range s.Nodes[:n] {
		d := &s.Nodes[i]
		d.View[0], d.View[1] = d.View[1], d.View[0]
		if d.Owner > 0 {
			d.Owner = 3 - d.Owner
		}
	}
	return s
}

func compare(a, b *state, n int) int {
	for i := range clients {
		x, y := a.Clients[i].bytes(), b.Clients[i].bytes()
		if c := bytes.Compare(x[:], y[:]); c != 0 {
			return c
		}
	}
	for i := range n {
		x, y := a.Nodes[i].bytes(), b.Nodes[i].bytes()
		if c := bytes.Compare(x[:], y[:]); c != 0 {
			return c
		}
	}
	return 0
}

func (d *node) bytes() (b [7]byte) {
	b[0] = d.Owner | d.Left<<2 | bit(d.Lost)<<5 | bit(d.Forced)<<6
	b[1] = d.Quarantine | d.Counter<<3
	b[2] = 0
	for i := range clients {
		v := &d.View[i]
		b[3+2*i] = byte(v.Place) | bit(v.Same)<<2 | bit(v.Undo)<<3 | bit(v.Taken)<<4 | v.Known<<5
		b[4+2*i] = byte(v.Vote) | v.Fence<<3
	}
	return b
}

func (c *client) bytes() (b [2]byte) {
	b[0] = byte(c.Phase) | c.Left<<2
	b[1] = bit(c.Doomed) | bit(c.Forced)<<1 | bit(c.Before)<<2 | bit(c.Touched)<<3
	return b
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// key is the state in few bytes.
type key [maxNodes*7 + clients*2 + 3]byte

func (s *state) key(n int) (k key) {
	at := 0
	for i := range n {
		b := s.Nodes[i].bytes()
		at += copy(k[at:], b[:])
	}
	for i := range s.Clients {
		b := s.Clients[i].bytes()
		at += copy(k[at:], b[:])
	}
	k[at] = s.Fence
	k[at+1] = s.Tries | s.Losses<<4
	k[at+2] = s.Forces | bit(s.Force)<<4
	return k
}
