package core

import (
	"slices"
	"sync"
	"time"
)

// LostLease tells of a hold that was lost: it ended before its release.
type LostLease struct {
	HeldLease // as it was then
	At        time.Time
	Reason    string // HoldEnd.Reason
}

// Age is for how long the hold had lasted.
func (l LostLease) Age() time.Duration { return l.At.Sub(l.Since) }

// Losses tells of the last 100 holds that this engine has lost, the latest first.
func (locks *Locks) Losses() []LostLease { return locks.losses.all() }

const maxLosses = 100

// losses keeps the latest losses: all is well while there are none, so they are kept for whoever asks afterwards.
type losses struct {
	mu   sync.Mutex
	kept []LostLease // the oldest first
}

func (l *losses) add(lost LostLease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.kept) == maxLosses {
		l.kept = slices.Delete(l.kept, 0, 1)
	}
	l.kept = append(l.kept, lost)
}

func (l *losses) all() []LostLease {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(l.kept)
	slices.Reverse(all)
	return all
}
