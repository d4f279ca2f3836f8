package fallback

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/latchkit/latchkit/core"
)

// prober is a store that can be asked whether it serves.
type prober struct {
	*store
	probes int
	err    error
}

func (p *prober) Probe(context.Context, string) error { p.probes++; return p.err }

// What can be probed is probed, and has no lock taken for it; its answer decides.
func TestAProberIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		p := &prober{store: s, err: down(t.Context(), nil)}
		b := wrap(t, p, after(1))
		open(t, b, s, down)
		s.set(nil)
		trips := s.count()
		time.Sleep(timeout + timeout/2)
		synctest.Wait()
		if b.State() != gobreaker.StateOpen || p.probes != 1 {
			t.Errorf("%v after %d probes, want it open after one", b.State(), p.probes)
		}
		p.err = nil
		time.Sleep(timeout)
		synctest.Wait()
		if b.State() != gobreaker.StateClosed || p.probes != 2 || s.count() != trips {
			t.Errorf("%v after %d probes and %d trips, want it closed after two and none", b.State(), p.probes, s.count()-trips)
		}
	})
}

// Of others a probe takes a lock that no user can want, and gives it back.
func TestAProbeLeavesNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := wrap(t, s, after(1))
		open(t, b, s, down)
		s.set(nil)
		from := s.count()
		time.Sleep(timeout + timeout/2)
		synctest.Wait()
		if b.State() != gobreaker.StateClosed {
			t.Fatal(b.State())
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		probe := s.seen[len(s.seen)-(s.trips-from):]
		if len(probe) != 2 || probe[0].Action != core.Try || probe[1].Action != core.Release || probe[0].Key != probe[1].Key ||
			probe[0].Owner != probe[1].Owner || !strings.HasPrefix(probe[0].Key, "latchkit~") {
			t.Errorf("the probe was %+v", probe)
		}
	})
}
