package core

import "time"

// Fences under RedLock.
//
// Each node has a counter. A grant reserves n fences at each node that takes part: the node sets its counter c to
// max(c + n, own µs + n - 1, min(proposal, own µs + 100 ms)) and answers with it. The fences of the grant are
// F-n+1 .. F, where F is
//
//	(a) the value on which a quorum of the nodes that hold the lock agrees, if there is one, else
//	(b) the greatest answer of the quorum, after it was written back to a quorum of nodes that hold the lock.
//
// Claim: the fences of a grant are greater than those of every grant of the same key before it. Take grant 1 with F1,
// and grant 2, which began to hold after grant 1 had ended.
//
//  1. When grant 1 is handed out there is a quorum W on which the counter is at least F1, and at each node of W that was
//     so while the node held the lock for grant 1: by the grant itself in (a), by the write-back, which compares the
//     owner, in (b).
//  2. Grant 2 has a quorum Q of nodes, and W and Q share a node j, since 2·quorum > nodes. j gave the lock to grant 2
//     after it had let go of it for grant 1, hence after its counter was at least F1. Counters do not go back, so j
//     answered grant 2 with c ≥ F1 + n.
//  3. In (a) the quorum that agrees may serve as Q, so F2 = c ≥ F1 + n; in (b) F2 is the greatest answer, so F2 ≥ c. In
//     both, the least of its fences is F2-n+1 > F1.
//
// The write-back cannot be left out. With counters 5,0,0,0,0 a first grant on nodes 1 to 3 gets the greatest answer, 6,
// and leaves 6,1,1,0,0; a second one on nodes 3 to 5 would get 2. One node whose clock is an hour fast makes this real.
// Writing it back to nodes that refused the lock would not do either: such a node may have granted the next holder before.
//
// The proposal is what makes (a) the usual case: the client's clock and 1 ms, which is ahead of the nodes' clocks, or
// just above what it has seen; so nodes whose clocks differ by less agree at once. It is capped by the node's own clock
// and 100 ms, so that a client whose clock is fast cannot drive the counters ahead of time. The write-back is not capped,
// for F must be reached whatever it is.
//
// A node that has lost its memory breaks "counters do not go back". It starts at its clock, and at the greatest counter
// that the judge could see (see redlock_memory.go); since counters are µs of a clock, and it grants nothing for the
// longest TTL, F1 is behind it then unless the clock of the node that made F1 was fast by more than that and no node
// that knows F1 answered the judge. This is "as far as clocks allow".

// Readers hold side by side, so 2 does not keep their fences apart. Where a quorum agrees for both, they have a node in
// common, which gave each of them a counter of its own. But one may take the greatest answer of its nodes while the others
// agree on the same for another. So a reader reserves readerFences, from a multiple of that number on, of which it has the
// first in (a); in (b) the one that belongs to the node whose answer was the greatest, and two readers never have the same
// of one node.

// readerFences is how many fences a reader reserves: the first, and one for each node.
const readerFences = mostNodes + 1

// aheadOfClock is how far a proposal is ahead of this process's clock.
const aheadOfClock = time.Millisecond

// propose returns the counter for a reservation of n fences: above every proposal before, and ahead of the clock.
func (b *redLock) propose(n int) int64 {
	clock := time.Now().Add(aheadOfClock).UnixMicro()
	for {
		last := b.proposal.Load()
		p := max(clock, last+1) + int64(n) - 1
		if b.proposal.CompareAndSwap(last, p) {
			return p
		}
	}
}

// seen notes a counter that a node has reached.
func (b *redLock) seen(counter int64) {
	for {
		last := b.proposal.Load()
		if counter <= last || b.proposal.CompareAndSwap(last, counter) {
			return
		}
	}
}

// agree returns the counter of the grant, and whether a quorum of the votes that count agrees on it already. The round
// is locked.
func (r *round) agree() (counter int64, agreed bool) {
	for i := range r.votes {
		if r.votes[i].standing != counts {
			continue
		}
		same := 0
		for j := range r.votes {
			if r.votes[j].standing == counts && r.votes[j].counter == r.votes[i].counter {
				same++
			}
		}
		if same >= r.lock.quorum {
			return r.votes[i].counter, true
		}
		counter = max(counter, r.votes[i].counter)
	}
	return counter, false
}

// writeBack is the round that brings the greatest counter to a quorum of the nodes that hold the lock.
func (r *round) writeBack(counter int64) *round {
	w := r.follow("b")
	w.of, w.counter = r, counter
	for i, v := range r.votes {
		if v.standing == counts && v.counter == counter {
			w.votes[i] = v // has it already
			if r.hold.shared {
				r.tie = int64(i) + 1
			}
		}
	}
	w.fence = r.first(counter)
	if r.action == "f" {
		w.fence = r.hold.firstFence() // what the lock says is the fence of the grant
	}
	return w
}

// first returns the first fence of a reservation that ends with counter.
func (r *round) first(counter int64) int64 { return counter - int64(r.fences) + 1 + r.tie }
