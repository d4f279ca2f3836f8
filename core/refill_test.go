package core_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkit/latchkit/core"
)

// A hand-off asks for fences while a renewal of the same tenure is answered: the race detector watches.
func TestRefillBesideARenewal(t *testing.T) {
	locks := newLocks(t, core.Local())
	for range 200 {
		lease := acquire(t, locks, "k")
		var others sync.WaitGroup
		others.Go(func() { release(t, acquire(t, locks, "k", core.WithWait(10*time.Second))) })
		others.Go(func() {
			for lease.Extend(t.Context(), time.Minute) == nil { // until it is released
			}
		})
		time.Sleep(50 * time.Microsecond) // lets them come to the gate; either order is right
		release(t, lease)
		others.Wait()
	}
}

// A chain of short holds asks for more fences at a time, so that it seldom asks; one of long holds leaves them to others.
func TestFencesAreAskedForAsTheyAreUsed(t *testing.T) {
	for held, most := range map[time.Duration]int{3 * time.Microsecond: 1024, time.Millisecond: 128} {
		synctest.Test(t, func(t *testing.T) {
			const holds = 4000
			b := newScripted()
			asked, total := 0, 0 // at most, at a time; and in all
			b.set(nil, func(op *core.Op) {
				if op.Action == core.Refill {
					asked = max(asked, op.Fences)
					total += op.Fences
				}
			})
			locks := newLocks(t, b)
			var all sync.WaitGroup
			for range holds {
				all.Go(func() {
					lease := acquire(t, locks, "k", core.WithWait(time.Minute))
					time.Sleep(held)
					release(t, lease)
				})
			}
			all.Wait()
			if asked != most {
				t.Errorf("holds of %v ask for %d fences at a time, want %d", held, asked, most)
			}
			if total > 4*holds {
				t.Errorf("%d holds of %v have asked for %d fences", holds, held, total)
			}
		})
	}
}
