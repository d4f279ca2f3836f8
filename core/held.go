package core

import (
	"slices"
	"strings"
	"time"
)

// HeldLease tells of a hold of this process.
type HeldLease struct {
	Key       string // as given to Acquire
	Kind      Kind
	Label     string
	Fence     int64 // 0: the backend cannot fence
	Since     time.Time
	Remaining time.Duration // until it ends unless it is extended
	Count     int           // leases of it that are not released: more than 1 where it was re-entered
	Renewed   bool          // the watchdog renews it
	Degraded  bool          // held without the store, by a fallback
}

// Age is for how long the hold has lasted.
func (h HeldLease) Age() time.Duration { return time.Since(h.Since) }

// Leases tells what this engine holds, the oldest first. It asks nobody.
func (locks *Locks) Leases() []HeldLease {
	var all []HeldLease
	now := time.Now()
	locks.gates.each(func(g *gate) {
		for _, t := range g.tenures {
			if t.state == held && t.hold != nil && !t.hold.ended {
				all = append(all, t.describe(now))
			}
		}
	})
	slices.SortFunc(all, func(a, b HeldLease) int {
		return oldestFirst(a.Since, b.Since, a.Key, b.Key)
	})
	return all
}

func (t *tenure) describe(now time.Time) HeldLease {
	h := t.hold
	return HeldLease{Key: h.leases.key, Kind: t.want.Kind, Label: t.want.Label, Fence: h.fence, Since: restated(h.began),
		Remaining: max(0, t.deadline.Sub(now)), Count: h.count, Renewed: t.renew, Degraded: t.degraded}
}

// WaitingKey tells of those in this process who wait for a key.
type WaitingKey struct {
	Key   string // as given to Acquire
	Count int
	Since time.Time // when the first of them came
}

// Waiting tells for which keys Acquires of this engine wait, those that have waited longest first. It asks nobody: for
// those who wait elsewhere, Inspect a key.
func (locks *Locks) Waiting() []WaitingKey {
	var all []WaitingKey
	locks.gates.each(func(g *gate) {
		var w WaitingKey
		for a := g.queue.head; a != nil; a = a.next {
			if a.wait == 0 || a.leads && g.refusal == nil { // on its first trip
				continue
			}
			if w.Count++; w.Count == 1 || a.began.Before(w.Since) {
				w.Key, w.Since = a.key, a.began
			}
		}
		if w.Count > 0 {
			w.Since = restated(w.Since)
			all = append(all, w)
		}
	})
	slices.SortFunc(all, func(a, b WaitingKey) int {
		return oldestFirst(a.Since, b.Since, a.Key, b.Key)
	})
	return all
}

func oldestFirst(a, b time.Time, keyA, keyB string) int {
	if c := a.Compare(b); c != 0 {
		return c
	}
	return strings.Compare(keyA, keyB)
}

// each calls fn for every gate, under its shard.
func (gs *gates) each(fn func(g *gate)) {
	for i := range gs.shards {
		s := &gs.shards[i]
		s.Lock()
		for _, g := range s.gates {
			fn(g)
		}
		s.Unlock()
	}
}

// Breakers tells of the breakers of a Backend that has some (Guarded), in the order of their nodes.
func (locks *Locks) Breakers() []Breaker {
	guarded, ok := locks.backend.(Guarded)
	if !ok {
		return nil
	}
	all := guarded.Breakers()
	slices.SortFunc(all, func(a, b Breaker) int { return strings.Compare(a.Node, b.Node) })
	return all
}
