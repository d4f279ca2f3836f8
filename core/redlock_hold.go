package core

import (
	"sync"
	"time"
)

// quorumHold is what this process knows of one hold at each node. It travels as Op.Home.
type quorumHold struct {
	key, owner string
	shared     bool
	// unknown: it was not granted through this Backend, so what the nodes say is all there is.
	unknown bool

	mu       sync.Mutex
	places   []place   // by node
	fence    int64     // the first of the grant: what the lock says in Redis
	deadline time.Time // the hold is valid till then by our clock; zero: it never was
	over     bool      // it is being given back: whatever extends it now comes too late
}

// place is what is known of a hold at one node.
type place struct {
	state placeState
	life  string // of the node's memory in which it got there
	until int64  // when it expires there, in the node's µs
	loose int64  // something that may still take the lock there lands before this, in the node's µs
}

type placeState uint8

const (
	// nowhere: the node never had the lock, or has it no more and that is no secret of anyone's.
	nowhere placeState = iota
	// filled: the lock was put there after the grant. It does not count yet.
	filled
	// kept: the node has had the lock since the grant, or since a quorum of such nodes stood by a filled one.
	kept
	// deleted: the node had it, has its memory, and has the lock no more. It is never filled in again.
	deleted
)

const never = int64(9e15) // in µs; exact in Lua's numbers

// holdOf returns the hold that op is about.
func (b *redLock) holdOf(op *Op) *quorumHold {
	if h, ok := op.Home.(*quorumHold); ok && h.key == op.Key && h.owner == op.Owner {
		return h
	}
	return &quorumHold{key: op.Key, owner: op.Owner, shared: op.Kind == Shared, unknown: op.Action != Try,
		places: make([]place, len(b.nodes))}
}

// letter is what lua/redlock.lua calls an action on this hold.
func (h *quorumHold) letter(action string) string {
	if h.shared {
		return letters[action[0]-'a'+'A']
	}
	return action
}

// standing is what an answer means for a hold that was granted.
type standing uint8

const (
	absent  standing = iota // not there, for a reason that proves nothing
	counts                  // there, and always was
	pending                 // there, but put there after the grant: counts from the next round that has its quorum
	removed                 // it was taken away
	taken                   // it was taken away, and another has it
)

// granted notes that the node has given the lock to this hold.
func (h *quorumHold) granted(i int, a nodeSays, ttl time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.places[i] = place{state: kept, life: a.life, until: a.now + ttl.Microseconds()}
}

// present notes that the node has the lock in this hold's name, with ttl left at least.
//
// It has been there all the time if by what was known it cannot have run out yet: what is deleted before its time is not
// filled in. Else an operation whose answer was lost may have filled it in, after others had it.
func (h *quorumHold) present(i int, a nodeSays, ttl time.Duration) standing {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.places[i]
	certain := a.now < p.until
	p.until = max(p.until, a.now+ttl.Microseconds())
	switch {
	case h.unknown:
		return counts
	case a.life == "-":
		return absent // brought back by a snapshot, perhaps: it counts when the node has been judged
	case p.state == deleted:
		return absent
	case p.state == nowhere, p.life != a.life:
		p.state, p.life = filled, a.life
		return absent
	case p.state == kept && certain:
		return counts
	}
	p.state = filled
	return pending
}

// missing notes that the node does not have the lock in this hold's name; foreign: but in another's.
func (h *quorumHold) missing(i int, a nodeSays, foreign bool) standing {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.places[i]
	remembers := p.life == a.life && a.life != "-" && a.now < p.until
	switch {
	case h.unknown, p.state == deleted, (p.state == kept || p.state == filled) && remembers:
		p.state, p.until = deleted, never
		if foreign {
			return taken
		}
		return removed
	case a.life != "-":
		p.state = nowhere
	}
	return absent
}

// promote has a filled place count from now on, unless the node has lost its memory of that life since: a quorum of
// places that always had the lock stands by it.
func (h *quorumHold) promote(i int, life string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.places[i].state == filled && h.places[i].life == life {
		h.places[i].state = kept
	}
}

// left notes that the node has let go of the lock.
func (h *quorumHold) left(i int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.places[i].state = nowhere
}

// loosen notes that something may take the lock at the node until then, in the node's time.
func (h *quorumHold) loosen(i int, until int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.places[i].loose = max(h.places[i].loose, until)
}

// settled tells whether nothing can take the lock at the node any more once it has shown the time now.
func (h *quorumHold) settled(i int, now int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now > h.places[i].loose
}

// place returns what is known of node i.
func (h *quorumHold) place(i int) place {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.places[i]
}

// term returns the fence that the lock says, and until when the hold is valid: the zero time when it never was, or is
// being given back.
func (h *quorumHold) term(givingBack bool) (fence int64, deadline time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over && !givingBack {
		return h.fence, time.Time{}
	}
	return h.fence, h.deadline
}

// end is called before the first node is told to let go: a renewal that was made ready before, and goes out later, fills
// in nothing any more.
func (h *quorumHold) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
}

// prolong moves the deadline on, never back.
func (h *quorumHold) prolong(until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if until.After(h.deadline) {
		h.deadline = until
	}
}

func (h *quorumHold) firstFence() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fence
}

func (h *quorumHold) setFence(first int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fence = first
}
