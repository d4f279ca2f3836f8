package fallback

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/latchkit/latchkit/core"
)

// prober is a store that can be asked whether it serves.
type prober struct {
	*store
	probes atomic.Int64
	away   atomic.Bool
}

func (p *prober) Probe(ctx context.Context, _ string) error {
	p.probes.Add(1)
	if p.away.Load() {
		return down(ctx, nil)
	}
	return nil
}

// What can be probed is probed, and has no lock taken for it; its answer decides.
func TestAProberIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		p := &prober{store: s}
		p.away.Store(true)
		b := wrap(t, p, after(1))
		open(t, b, s, down)
		s.set(nil)
		trips := s.count()
		time.Sleep(timeout + timeout/2)
		synctest.Wait()
		if b.State() != gobreaker.StateOpen || p.probes.Load() != 1 {
			t.Errorf("%v after %d probes, want it open after one", b.State(), p.probes.Load())
		}
		p.away.Store(false)
		time.Sleep(timeout)
		synctest.Wait()
		if b.State() != gobreaker.StateClosed || p.probes.Load() != 2 || s.count() != trips {
			t.Errorf("%v after %d probes and %d trips, want it closed after two and none", b.State(), p.probes.Load(), s.count()-trips)
		}
	})
}

// Of others a probe takes a lock that no user can want, and gives it back.
func TestAProbeLeavesNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		open(t, b, s, down)
		from := s.count()
		back(t, b, s)
		s.mu.Lock()
		defer s.mu.Unlock()
		probe := s.seen[len(s.seen)-(s.trips-from):]
		if len(probe) != 2 || probe[0].Action != core.Try || probe[1].Action != core.Release || probe[0].Key != probe[1].Key ||
			probe[0].Owner != probe[1].Owner || !strings.HasPrefix(probe[0].Key, "latchkit~") {
			t.Errorf("the probe was %+v", probe)
		}
	})
}
