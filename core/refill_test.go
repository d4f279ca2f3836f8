package core_test

import (
	"sync"
	"testing"
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
