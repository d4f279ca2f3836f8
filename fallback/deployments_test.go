package fallback

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// The fallback in front of what a deployment has for a store, from the engine to the servers.

// redLock starts three servers, and returns them with a fallback in front.
func redLock(t *testing.T, opts ...Option) ([]*redistest.Server, *Backend) {
	t.Helper()
	var servers []*redistest.Server
	var clients []redis.UniversalClient
	for range 3 {
		s := redistest.Start(t)
		servers, clients = append(servers, s), append(clients, s.Client())
	}
	return servers, wrap(t, core.RedLock(clients, core.WithMaxTTL(2*time.Second)), opts...)
}

// soon polls until ok.
func soon(t *testing.T, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > limit {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// passes takes key and gives it back, and tells whether that was without the store.
func passes(t *testing.T, locks *core.Locks, key string) (degraded bool, err error) {
	t.Helper()
	lease, err := locks.Acquire(t.Context(), key)
	if err != nil {
		return false, err
	}
	defer lease.Release(context.Background())
	if (lease.Fence() == 0) != lease.Degraded() {
		t.Errorf("degraded %v, fence %d", lease.Degraded(), lease.Fence())
	}
	return lease.Degraded(), nil
}

func TestARedLockWithoutAQuorum(t *testing.T) {
	t.Parallel() // it mostly waits
	var closings atomic.Int32
	servers, b := redLock(t, WithBreaker(gobreaker.Settings{Timeout: openFor, ReadyToTrip: failing,
		OnStateChange: func(_ string, _, to gobreaker.State) {
			if to == gobreaker.StateClosed {
				closings.Add(1)
			}
		}}))
	locks := engine(t, b, core.WithTTL(time.Second))
	soon(t, "a first lock", opLimit, func() bool {
		degraded, err := passes(t, locks, "k")
		return err == nil && !degraded
	})
	for _, f := range faults {
		if f.name != "paused" && f.name != "full" {
			continue // the others are lost memory, of which see below, or like these two
		}
		closed := closings.Load()
		f.strike(servers[0])
		f.strike(servers[1])
		soon(t, f.name+": local locks", 3*opLimit, func() bool {
			degraded, err := passes(t, locks, "k")
			return err == nil && degraded
		})
		time.Sleep(3 * openFor) // probes come and go
		if n := closings.Load() - closed; n > 0 || b.State() == gobreaker.StateClosed {
			t.Errorf("%s: it closed %d times, though no lock can be had there", f.name, n)
		}
		f.mend(servers[0])
		soon(t, f.name+": recovery by a majority", openFor+time.Second+slack, func() bool {
			degraded, err := passes(t, locks, "k")
			return err == nil && !degraded
		})
		f.mend(servers[1])
	}
}

// Nodes that have lost their memory answer, and grant nothing for a time that is known. Local locks meanwhile would be
// beside those that the nodes may have forgotten.
func TestAQuarantineOfARedLockIsNotFallenBackOn(t *testing.T) {
	t.Parallel() // it mostly waits
	servers, b := redLock(t, quick())
	locks := engine(t, b, core.WithTTL(time.Second))
	soon(t, "a first lock", opLimit, func() bool {
		_, err := passes(t, locks, "k")
		return err == nil
	})
	for _, s := range servers[:2] {
		s.Kill()
		s.Restart()
	}
	var quarantine *core.QuarantineError
	soon(t, "the quarantine is seen", opLimit, func() bool {
		_, err := passes(t, locks, "k")
		return errors.As(err, &quarantine)
	})
	if quarantine.RetryAfter <= 0 || quarantine.RetryAfter > 2100*time.Millisecond { // and drift
		t.Errorf("come again after %v", quarantine.RetryAfter)
	}
	lease := acquire(t, locks, "k", core.WithWait(2*opLimit)) // waits it out
	if lease.Degraded() {
		t.Error("degraded")
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestASentinelSetThatFailsOver(t *testing.T) {
	t.Parallel() // it mostly waits
	set := redistest.StartSentinel(t, 1, 3)
	b := wrap(t, core.Redis(set.Client()), quick())
	locks := engine(t, b, core.WithTTL(3*time.Second))
	held := acquire(t, locks, "held")
	set.Master().Kill()
	soon(t, "local locks until there is a master", 3*opLimit, func() bool {
		degraded, err := passes(t, locks, "k")
		return err == nil && degraded
	})
	if _, err := passes(t, locks, "held"); !errors.Is(err, core.ErrNotAcquired) {
		t.Errorf("beside a lease that the store granted: %v", err)
	}
	soon(t, "the new master's locks", 20*time.Second, func() bool {
		degraded, err := passes(t, locks, "k")
		return err == nil && !degraded
	})
	if err := held.Release(t.Context()); err != nil && !errors.Is(err, core.ErrLost) { // the replica may not have got it
		t.Error(err)
	}
}

// TestADeadShardOfAClusterLeavesTheOthersAlone kills one master of three.
func TestADeadShardOfAClusterLeavesTheOthersAlone(t *testing.T) {
	t.Parallel() // it mostly waits
	cluster := redistest.StartCluster(t, 3, 0, redistest.WithArgs("--cluster-require-full-coverage", "no"))
	b := wrap(t, core.Redis(cluster.Client()), quick())
	locks := engine(t, b)
	dead := cluster.MasterFor("k0")
	keys := map[bool]string{} // by whether the dead master has it
	for i := 0; len(keys) < 2; i++ {
		key := fmt.Sprint("k", i)
		keys[cluster.MasterFor(key) == dead] = key
	}
	for _, key := range keys {
		lease := acquire(t, locks, key, core.WithWait(5*time.Second))
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	dead.Kill()
	soon(t, "local locks of the dead shard", 2*opLimit, func() bool {
		degraded, err := passes(t, locks, keys[true])
		return err == nil && degraded
	})
	if degraded, err := passes(t, locks, keys[false]); err != nil || degraded {
		t.Errorf("a key of another shard: degraded %v, %v, breakers %v", degraded, err, b.States())
	}

	// Several keys at once: each is held where it can be.
	one, two := "{"+keys[true]+"}:1", "{"+keys[true]+"}:2"
	all, err := core.AcquireAll(t.Context(), locks, []string{keys[false], one, two})
	if err != nil {
		t.Fatalf("all: %v, breakers %v", err, b.States())
	}
	for _, lease := range all.Leases() {
		if lease.Degraded() != (lease.Key() != keys[false]) {
			t.Errorf("%q: degraded %v", lease.Key(), lease.Degraded())
		}
	}
	for _, key := range []string{one, two, keys[false]} {
		if _, err := passes(t, locks, key); !errors.Is(err, core.ErrNotAcquired) {
			t.Errorf("%q beside them: %v", key, err)
		}
	}
	if _, err := core.AcquireAll(t.Context(), locks, []string{"{" + keys[true] + "}:0", two}); !errors.Is(err, core.ErrNotAcquired) {
		t.Errorf("all beside them: %v", err)
	}
	if _, err := passes(t, locks, "{"+keys[true]+"}:0"); err != nil {
		t.Errorf("it was to be all or none: %v", err)
	}
	if err := all.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if info, err := locks.Inspect(t.Context(), keys[false]); err != nil || info.Held {
		t.Errorf("afterwards: %+v, %v", info, err)
	}
}

// Several keys over one server, which is out of reach for a while as they are held.
func TestSeveralKeysCrossOver(t *testing.T) {
	t.Parallel() // it mostly waits
	server := redistest.Start(t)
	proxy := server.Proxy(t)
	b := wrap(t, core.Redis(proxy.NewClient(nil)), quick())
	locks := engine(t, b, core.WithTTL(20*time.Second))
	keys := []string{"{u}:a", "{u}:b", "c"}
	all, err := core.AcquireAll(t.Context(), locks, keys)
	if err != nil {
		t.Fatal(err)
	}
	proxy.Refuse()
	soon(t, "local locks", 3*opLimit, func() bool {
		degraded, err := passes(t, locks, "k")
		return err == nil && degraded
	})
	if _, err := core.AcquireAll(t.Context(), locks, []string{"{u}:0", "{u}:a"}); !errors.Is(err, core.ErrNotAcquired) {
		t.Errorf("beside those that the store granted: %v", err)
	}
	local, err := core.AcquireAll(t.Context(), locks, []string{"{v}:a", "{v}:b"})
	if err != nil {
		t.Fatal(err)
	}
	proxy.Restore()
	soon(t, "recovery", openFor+time.Second+slack, func() bool { return b.State() == gobreaker.StateClosed })
	soon(t, "the store has the local ones", opLimit, func() bool {
		n, err := server.Client().Exists(t.Context(), "{v}:a", "{v}:b").Result()
		return err == nil && n == 2
	})
	for _, m := range []*core.MultiLease{all, local} {
		if err := context.Cause(m.Context()); err != nil {
			t.Errorf("lost: %v", err)
		}
		if err := m.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	soon(t, "nothing is left", opLimit, func() bool {
		n, err := server.Client().Exists(t.Context(), append(keys, "{v}:a", "{v}:b")...).Result()
		return err == nil && n == 0
	})
}
