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
	for i := range locks.gates.shards {
		s := &locks.gates.shards[i]
		s.Lock()
		for _, g := range s.gates {
			for _, t := range g.tenures {
				if t.state == held && t.hold != nil && !t.hold.ended {
					all = append(all, t.describe(now))
				}
			}
		}
		s.Unlock()
	}
	slices.SortFunc(all, func(a, b HeldLease) int {
		if c := a.Since.Compare(b.Since); c != 0 {
			return c
		}
		return strings.Compare(a.Key, b.Key)
	})
	return all
}

func (t *tenure) describe(now time.Time) HeldLease {
	h := t.hold
	return HeldLease{Key: h.leases.key, Kind: t.want.Kind, Label: t.want.Label, Fence: h.fence, Since: h.began,
		Remaining: max(0, t.deadline.Sub(now)), Count: h.count, Renewed: t.renew, Degraded: t.degraded}
}
