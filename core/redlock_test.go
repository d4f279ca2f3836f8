package core_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// nodes are the servers of a RedLock in a test.
type nodes []*redistest.Server

func startNodes(t testing.TB, n int, opts ...redistest.Option) nodes {
	t.Helper()
	return redistest.StartN(t, n, opts...)
}

// redlock returns a Backend of its own, with connections of its own: another process. Unless the options say otherwise it
// is patient with nodes that share a small machine.
func (ns nodes) redlock(opts ...core.RedLockOption) core.Backend {
	return core.RedLock(clientsOf(ns), append([]core.RedLockOption{core.WithNodeTimeout(time.Second)}, opts...)...)
}

// enrol starts the nodes as a RedLock, for tests whose own clients have little patience.
func (ns nodes) enrol(t testing.TB) {
	t.Helper()
	release(t, acquire(t, newLocks(t, ns.redlock()), "enrol"))
}

// holders returns how many of the nodes that answer have key.
func (ns nodes) holders(t testing.TB, key string) (n int) {
	t.Helper()
	for _, s := range ns {
		if s.Pid() == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		n += int(s.Client().Exists(ctx, key).Val())
		cancel()
	}
	return n
}

func (ns nodes) each(do func(*redistest.Server)) {
	var all sync.WaitGroup
	for _, s := range ns {
		all.Go(func() { do(s) })
	}
	all.Wait()
}

// outlives polls for a while that the lease is held.
func outlives(t testing.TB, lease *core.Lease, d time.Duration) {
	t.Helper()
	select {
	case <-lease.Context().Done():
		t.Fatalf("the hold ended: %v", context.Cause(lease.Context()))
	case <-time.After(d):
	}
}

func ends(t testing.TB, lease *core.Lease, limit time.Duration) {
	t.Helper()
	select {
	case <-lease.Context().Done():
	case <-time.After(limit):
		t.Fatalf("the lease's context has not ended within %v", limit)
	}
}

// L37: what cannot be a RedLock is refused by New.
func TestRedLockRefusesWhatIsNone(t *testing.T) {
	ns := startNodes(t, 3)
	a, b, c := ns[0].Client(), ns[1].Client(), ns[2].Client()
	many := make([]redis.UniversalClient, 16)
	for i := range many {
		many[i] = ns[0].Client()
	}
	for name, nodes := range map[string][]redis.UniversalClient{
		"none":            nil,
		"two":             {a, b},
		"sixteen":         many,
		"the same client": {a, b, a},
		"the same server": {a, b, ns[0].Client()},
		"nil":             {a, b, nil},
		"a nil pointer":   {a, b, (*redis.Client)(nil)},
		"a Cluster's":     {a, b, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})},
		"another name's":  {a, c, redis.NewClient(&redis.Options{Addr: strings.Replace(a.Options().Addr, "127.0.0.1", "localhost", 1)})},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := core.New(core.RedLock(nodes))
			wantErr(t, err, core.ErrInvalidOption)
		})
	}
	for name, opt := range map[string]core.RedLockOption{
		"node timeout": core.WithNodeTimeout(0), "max TTL": core.WithMaxTTL(25 * time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := core.New(core.RedLock([]redis.UniversalClient{a, b, c}, opt))
			wantErr(t, err, core.ErrInvalidOption)
		})
	}
}

func TestRedLockBoundsTheTTL(t *testing.T) {
	ns := startNodes(t, 3)
	locks := newLocks(t, ns.redlock(core.WithMaxTTL(5*time.Second)), core.WithTTL(time.Second))
	_, err := locks.Acquire(t.Context(), "k", core.WithTTL(6*time.Second))
	wantErr(t, err, core.ErrInvalidOption)
	lease := acquire(t, locks, "k")
	wantErr(t, lease.Extend(t.Context(), 6*time.Second), core.ErrInvalidOption)
	if err := lease.Extend(t.Context(), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	for _, opt := range []core.Option{core.WithFair(), core.WithLimit(2)} {
		_, err = locks.Acquire(t.Context(), "k2", opt)
		wantErr(t, err, core.ErrInvalidOption)
	}
	release(t, lease)
}

// L34: a majority serves; without one it is ErrUnavailable, in the time of one node, and nothing stays behind.
func TestRedLockServesWithAMajority(t *testing.T) {
	ns := startNodes(t, 5)
	ns.enrol(t)
	locks := newLocks(t, ns.redlock(core.WithNodeTimeout(core.DefaultNodeTimeout)))
	release(t, acquire(t, locks, "warm"))
	ns[3].Pause()
	ns[4].Kill()
	lease := acquire(t, locks, "k")
	if err := lease.Extend(t.Context(), 40*time.Second); err != nil {
		t.Fatal(err)
	}
	release(t, lease)
	ns[2].Pause()
	began := time.Now()
	_, err := locks.Acquire(t.Context(), "k")
	took := time.Since(began)
	wantErr(t, err, core.ErrUnavailable)
	if errors.Is(err, core.ErrNotAcquired) || took > 2*core.DefaultNodeTimeout { // nobody tries twice
		t.Errorf("%v after %v", err, took)
	}
	eventually(t, time.Second, "the two granted keys are freed", func() bool { return ns[:2].holders(t, "k") == 0 })
	ns[2].Resume()
	release(t, acquire(t, locks, "k", core.WithWait(5*time.Second)))
	ns[4].Restart() // the clients dial still
}

// L35: a rival has a majority: busy, at once, and what was taken is given back.
func TestRedLockGivesBackWhatItTook(t *testing.T) {
	ns := startNodes(t, 5)
	locks := newLocks(t, ns.redlock())
	for _, s := range ns[:3] {
		s.Client().Set(t.Context(), "k", "somebody else's token", time.Minute)
	}
	for range 20 {
		began := time.Now()
		_, err := locks.Acquire(t.Context(), "k")
		wantErr(t, err, core.ErrNotAcquired)
		if took := time.Since(began); took > time.Second {
			t.Errorf("refused after %v", took)
		}
	}
	eventually(t, time.Second, "what was taken is freed", func() bool { return ns.holders(t, "k") == 3 })
}

// L36: an answer that comes after the lease's time is no grant, and what it took is given back.
func TestRedLockTakesNoLateGrant(t *testing.T) {
	ns := startNodes(t, 3)
	var clients []redis.UniversalClient
	var proxies []*redistest.Proxy
	for _, s := range ns {
		proxies = append(proxies, s.Proxy(t))
		clients = append(clients, proxies[len(proxies)-1].NewClient(nil))
	}
	locks := newLocks(t, core.RedLock(clients, core.WithNodeTimeout(2*time.Second)))
	impatient := newLocks(t, core.RedLock(clients, core.WithNodeTimeout(100*time.Millisecond)))
	for _, l := range []*core.Locks{locks, impatient} {
		eventually(t, 10*time.Second, "it works as long as they answer", func() bool {
			lease, err := l.Acquire(t.Context(), "warm")
			return err == nil && lease.Release(t.Context()) == nil
		})
	}
	for _, p := range proxies[:2] {
		p.Latency(300 * time.Millisecond)
	}
	_, err := locks.Acquire(t.Context(), "k", core.WithTTL(200*time.Millisecond))
	wantErr(t, err, core.ErrUnavailable)
	// Answers after the node's time, which take what would stand for long.
	_, err = impatient.Acquire(t.Context(), "long", core.WithTTL(50*time.Second))
	wantErr(t, err, core.ErrUnavailable)
	eventually(t, 5*time.Second, "all is given back long before its TTL", func() bool {
		return ns.holders(t, "k") == 0 && ns.holders(t, "long") == 0
	})
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if n := ns.holders(t, "long"); n != 0 {
			t.Fatalf("%d nodes have it again", n)
		}
	}
}

// L43: what is no lock is left as it is, where it stands on all nodes, on a majority or on one.
func TestRedLockConflict(t *testing.T) {
	ns := startNodes(t, 3)
	locks := newLocks(t, ns.redlock())
	for thing, put := range map[string]func(rdb *redis.Client, key string) error{
		"a list": func(rdb *redis.Client, key string) error { return rdb.RPush(t.Context(), key, "x").Err() },
		"a sorted set": func(rdb *redis.Client, key string) error {
			return rdb.ZAdd(t.Context(), key, redis.Z{Member: "x"}).Err()
		},
		"a string without TTL": func(rdb *redis.Client, key string) error { return rdb.Set(t.Context(), key, "x", 0).Err() },
	} {
		for _, on := range []int{3, 2} {
			key := thing + time.Duration(on).String()
			for _, s := range ns[:on] {
				must(t, put(s.Client(), key))
			}
			before := ns[0].Client().Dump(t.Context(), key).Val()
			for _, wait := range []time.Duration{0, time.Second} {
				_, err := locks.Acquire(t.Context(), key, core.WithWait(wait))
				if !errors.Is(err, core.ErrConflict) {
					t.Errorf("%s on %d nodes: %v", thing, on, err)
				}
			}
			if err := locks.ForceRelease(t.Context(), key); !errors.Is(err, core.ErrConflict) {
				t.Errorf("%s on %d nodes: ForceRelease: %v", thing, on, err)
			}
			if after := ns[0].Client().Dump(t.Context(), key).Val(); after != before {
				t.Errorf("%s has changed", thing)
			}
			eventually(t, 2*time.Second, "nothing is left beside it", func() bool { return ns.holders(t, key) == on })
		}
	}
}

// What a node reads after the attempt is over takes nothing, not even for the moment until it is undone.
func TestRedLockNothingLandsLate(t *testing.T) {
	for kind, opts := range map[string][]core.Option{"exclusive": nil, "shared": {core.WithShared()}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ns := startNodes(t, 3)
			locks := newLocks(t, ns.redlock())
			release(t, acquire(t, locks, "k", opts...))
			fence := func(s *redistest.Server) string { return s.Client().Get(t.Context(), "latchkit~fence").Val() }
			before := []string{fence(ns[0]), fence(ns[1])}
			ns[0].Pause()
			ns[1].Pause()
			_, err := locks.Acquire(t.Context(), "k", opts...)
			wantErr(t, err, core.ErrUnavailable)
			time.Sleep(200 * time.Millisecond) // past the not-after, which is told in a time that is ahead by a trip at most
			ns[0].Resume()
			ns[1].Resume()
			for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				for i, s := range ns[:2] {
					if now := fence(s); now != before[i] {
						t.Fatalf("node %d has granted after the attempt was over: fence %s, was %s", i, now, before[i])
					}
				}
			}
			release(t, acquire(t, locks, "k", core.WithWait(5*time.Second)))
		})
	}
}

// L38: nodes restarted one after another, without memory, during a long hold: it survives, and so does its majority.
func TestRedLockHoldSurvivesRestarts(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 5)
	const ttl = 2 * time.Second
	locks, rival := newLocks(t, ns.redlock(core.WithMaxTTL(ttl))), newLocks(t, ns.redlock(core.WithMaxTTL(ttl)))
	lease := acquire(t, locks, "k", core.WithTTL(ttl))
	for _, s := range ns[:3] { // then it stands on no majority of those that had it first
		s.RestartEmpty()
		eventually(t, 15*time.Second, "the hold is on all nodes again", func() bool {
			outlives(t, lease, 0)
			return ns.holders(t, "k") == 5
		})
		outlives(t, lease, ttl) // from the next round on the node counts
		_, err := rival.Acquire(t.Context(), "k", core.WithTTL(ttl))
		wantErr(t, err, core.ErrNotAcquired)
	}
	release(t, lease)
	eventually(t, time.Second, "it is gone everywhere", func() bool { return ns.holders(t, "k") == 0 })
}

// The wrong rule: three that forgot are taken for new, since the two that remember do not answer.
func TestRedLockForgetfulNodesAreNotNew(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(*redistest.Server){
		"restarted empty": (*redistest.Server).RestartEmpty,
		"flushed":         func(s *redistest.Server) { s.Client().FlushAll(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			ns := startNodes(t, 5)
			const most = 2 * time.Second
			holder := newLocks(t, ns.redlock(core.WithMaxTTL(most)))
			lease := acquire(t, holder, "k", core.WithTTL(most), core.WithoutRenewal())
			ns[3].Pause()
			ns[4].Pause()
			ns[:3].each(forget)
			rival := newLocks(t, ns.redlock(core.WithMaxTTL(most)))
			began := time.Now()
			_, err := rival.Acquire(t.Context(), "k", core.WithTTL(most))
			var quarantine *core.QuarantineError
			if !errors.As(err, &quarantine) || quarantine.RetryAfter <= 0 || quarantine.RetryAfter > most+most/50+10*time.Millisecond {
				t.Fatalf("got %v, want a quarantine of up to %v", err, most)
			}
			wantErr(t, err, core.ErrUnavailable)
			// One who may wait waits it out.
			next := acquire(t, rival, "k", core.WithTTL(most), core.WithWait(10*time.Second))
			if lease.Remaining() > 0 || time.Since(began) < lease.Deadline().Sub(began) {
				t.Errorf("a second holder while the first still had %v", lease.Remaining())
			}
			if next.Fence() <= lease.Fence() {
				t.Errorf("fence %d after %d", next.Fence(), lease.Fence())
			}
			release(t, next)
			ns[3].Resume()
			ns[4].Resume()
		})
	}
}

// The other wrong rule: a marker that a snapshot has brought back.
func TestRedLockDoesNotTrustASnapshotsMarker(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3, redistest.WithArgs("--save", "3600 1"))
	const most = 2 * time.Second
	holder := newLocks(t, ns.redlock(core.WithMaxTTL(most)))
	release(t, acquire(t, holder, "warm", core.WithTTL(most)))
	for _, s := range ns {
		if err := s.Client().Save(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	rival := newLocks(t, ns.redlock(core.WithMaxTTL(most))) // it knows the nodes from before
	release(t, acquire(t, rival, "warm", core.WithTTL(most)))
	lease := acquire(t, holder, "k", core.WithTTL(most), core.WithoutRenewal())
	for _, s := range ns[:2] {
		s.Restart()
		if n := s.Client().Exists(t.Context(), "latchkit~node").Val(); n != 1 {
			t.Fatal("the snapshot has not brought the marker back")
		}
	}
	_, err := rival.Acquire(t.Context(), "k", core.WithTTL(most))
	if err == nil {
		t.Fatal("a second holder")
	}
	_, err = newLocks(t, ns.redlock(core.WithMaxTTL(most))).Acquire(t.Context(), "k", core.WithTTL(most))
	if err == nil {
		t.Fatal("a second holder, in a new process")
	}
	_, err = holder.Acquire(t.Context(), "other", core.WithTTL(most))
	wantErr(t, err, core.ErrUnavailable)
	next := acquire(t, rival, "k", core.WithTTL(most), core.WithWait(10*time.Second))
	if lease.Remaining() > 0 {
		t.Errorf("a second holder while the first still had %v", lease.Remaining())
	}
	release(t, next)
}

// A node declared durable keeps its memory over a restart.
func TestRedLockDurableNodesRemember(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3, redistest.WithPersistence())
	a, b := newLocks(t, ns.redlock(core.WithDurableNodes())), newLocks(t, ns.redlock(core.WithDurableNodes()))
	lease := acquire(t, a, "k")
	ns.each((*redistest.Server).Restart)
	_, err := b.Acquire(t.Context(), "k")
	wantErr(t, err, core.ErrNotAcquired)
	eventually(t, 5*time.Second, "the nodes serve again at once", func() bool {
		other, err := b.Acquire(t.Context(), "other")
		if err == nil {
			release(t, other)
		}
		return err == nil
	})
	if err := lease.Extend(t.Context(), 31*time.Second); err != nil {
		t.Error(err)
	}
	release(t, lease)
	// Without its file it has forgotten like any other.
	ns[:2].each((*redistest.Server).RestartEmpty)
	_, err = b.Acquire(t.Context(), "k", core.WithTTL(time.Second))
	wantErr(t, err, core.ErrUnavailable)
}

func TestRedLockFirstStart(t *testing.T) {
	t.Parallel()
	t.Run("at once when all answer", func(t *testing.T) {
		ns := startNodes(t, 5)
		// Several processes start at the same time.
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				locks, err := core.New(ns.redlock())
				if err != nil {
					t.Error(err)
					return
				}
				lease, err := locks.Acquire(t.Context(), "k", core.WithWait(5*time.Second))
				if err != nil {
					t.Error(err)
				} else {
					lease.Release(t.Context())
				}
				locks.Close(t.Context())
			})
		}
		all.Wait()
	})
	t.Run("not while one hangs", func(t *testing.T) {
		ns := startNodes(t, 3)
		ns[2].Pause()
		locks := newLocks(t, ns.redlock(core.WithMaxTTL(time.Second)))
		_, err := locks.Acquire(t.Context(), "k", core.WithTTL(time.Second))
		wantErr(t, err, core.ErrUnavailable)
		release(t, acquire(t, locks, "k", core.WithTTL(time.Second), core.WithWait(10*time.Second)))
		ns[2].Resume()
		eventually(t, 10*time.Second, "the third is enrolled when it answers", func() bool {
			lease := acquire(t, locks, "k", core.WithTTL(time.Second), core.WithWait(10*time.Second))
			defer release(t, lease)
			return ns.holders(t, "k") == 3
		})
	})
	t.Run("strict", func(t *testing.T) {
		ns := startNodes(t, 3)
		locks := newLocks(t, ns.redlock(core.WithMaxTTL(time.Second), core.WithStrictRestart()))
		var quarantine *core.QuarantineError
		_, err := locks.Acquire(t.Context(), "k", core.WithTTL(time.Second))
		if !errors.As(err, &quarantine) {
			t.Fatalf("got %v, want a quarantine", err)
		}
		first := acquire(t, locks, "k", core.WithTTL(time.Second), core.WithWait(10*time.Second), core.WithoutRenewal())
		ns.each((*redistest.Server).RestartEmpty)
		rival := newLocks(t, ns.redlock(core.WithMaxTTL(time.Second), core.WithStrictRestart()))
		next := acquire(t, rival, "k", core.WithTTL(time.Second), core.WithWait(10*time.Second))
		if first.Remaining() > 0 {
			t.Error("a second holder after all nodes have lost their memory")
		}
		release(t, next)
	})
}

// The wait for a quarantine ends like any other, and says why there was none to be had.
func TestRedLockQuarantineEndsTheWaitAsUnavailable(t *testing.T) {
	ns := startNodes(t, 3)
	locks := newLocks(t, ns.redlock(core.WithStrictRestart()))
	began := time.Now()
	_, err := locks.Acquire(t.Context(), "k", core.WithWait(300*time.Millisecond))
	wantErr(t, err, core.ErrUnavailable)
	if errors.Is(err, core.ErrNotAcquired) || time.Since(began) < 300*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = locks.Acquire(ctx, "k", core.WithWait(core.Forever))
	wantErr(t, err, core.ErrUnavailable, context.DeadlineExceeded)
}

// Deleted is deleted: nothing fills a lock in again that was taken away by force.
func TestRedLockForceReleaseIsFinal(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 5)
	const ttl = 1200 * time.Millisecond
	holder, operator := newLocks(t, ns.redlock(core.WithMaxTTL(ttl))), newLocks(t, ns.redlock(core.WithMaxTTL(ttl)))
	for range 2 {
		lease := acquire(t, holder, "k", core.WithTTL(ttl))
		if err := operator.ForceRelease(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		eventually(t, ttl/3, "no node has it", func() bool { return ns.holders(t, "k") == 0 })
		ends(t, lease, ttl)
		wantErr(t, context.Cause(lease.Context()), core.ErrLost)
		for end := time.Now().Add(ttl); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if n := ns.holders(t, "k"); n != 0 {
				t.Fatalf("it came back on %d nodes", n)
			}
		}
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
	}
	// With nodes that forget on top of it.
	lease := acquire(t, holder, "k", core.WithTTL(ttl))
	if err := operator.ForceRelease(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	ns[0].RestartEmpty()
	ends(t, lease, 2*ttl)
	eventually(t, 2*time.Second, "nothing stays", func() bool { return ns.holders(t, "k") == 0 })
}

// A deletion of a minority, by eviction say, is neither a loss nor repaired.
func TestRedLockDeletionIsNotRepaired(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 5)
	const ttl = time.Second
	locks := newLocks(t, ns.redlock())
	lease := acquire(t, locks, "k", core.WithTTL(ttl))
	eventually(t, time.Second, "all nodes have it", func() bool { return ns.holders(t, "k") == 5 })
	ns[0].Client().Del(t.Context(), "k")
	ns[1].Client().Del(t.Context(), "k")
	outlives(t, lease, 2*ttl)
	if n := ns.holders(t, "k"); n != 3 {
		t.Errorf("%d nodes have it, want the 3 from which it was not deleted", n)
	}
	ns[2].Client().Del(t.Context(), "k")
	ends(t, lease, ttl/3+ttl/2)
	wantErr(t, context.Cause(lease.Context()), core.ErrLost)
}

// A node that was silent for longer than the TTL is filled in again: it let the lock expire, nobody deleted it.
func TestRedLockFillsInWhatExpiredInSilence(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 5)
	const ttl = 800 * time.Millisecond
	locks := newLocks(t, ns.redlock())
	lease := acquire(t, locks, "k", core.WithTTL(ttl))
	for _, s := range ns[:3] { // then it stands on no majority of those that had it first
		s.Pause()
		outlives(t, lease, ttl+ttl/2)
		s.Resume()
		eventually(t, 5*time.Second, "the lock is on all nodes again", func() bool { return ns.holders(t, "k") == 5 })
		outlives(t, lease, ttl)
	}
	release(t, lease)
}

// L33: fences grow whatever happens to a minority of the nodes.
func TestRedLockFencesGrow(t *testing.T) {
	ns := startNodes(t, 5)
	const most = time.Second
	locks := newLocks(t, ns.redlock(core.WithMaxTTL(most)), core.WithTTL(most), core.WithoutRenewal())
	var last int64
	next := func(opts ...core.Option) (lease *core.Lease) {
		t.Helper()
		eventually(t, 20*time.Second, "a lease", func() bool {
			var err error
			lease, err = locks.Acquire(t.Context(), "k", append(opts, core.WithWait(20*time.Second))...)
			return err == nil
		})
		if lease.Fence() <= last {
			t.Fatalf("fence %d after %d", lease.Fence(), last)
		}
		last = lease.Fence()
		return lease
	}
	for i := range 300 {
		if i%100 == 50 {
			ends(t, next(core.WithTTL(most/5)), time.Second) // it expires
			continue
		}
		lease := next()
		switch {
		case i%100 == 7:
			ns[i/100%5].RestartEmpty()
			lease.Release(t.Context()) // it may have run out
		case i%10 == 3:
			for _, s := range ns {
				s.Client().Del(t.Context(), "k")
			}
			lease.Release(t.Context())
		case i%10 == 6:
			if err := locks.ForceRelease(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		default:
			if err := lease.Release(t.Context()); err != nil && !errors.Is(err, core.ErrLost) { // slow machines let it run out
				t.Fatal(err)
			}
		}
	}
}

// The counterexample of redlock_fence.go: one node whose clock is an hour fast, and majorities that share one node.
func TestRedLockFencesGrowWithAFastClock(t *testing.T) {
	slow, fast := startNodes(t, 4), startNodes(t, 1, redistest.WithFaketime("+1h"))
	ns := append(nodes{fast[0]}, slow...)
	var offsets clockTracer
	locks := newLocks(t, ns.redlock(), core.WithTracer(&offsets))
	warm := acquire(t, locks, "warm")
	info, err := locks.Inspect(t.Context(), "warm")
	if err != nil || !info.Held || len(info.Nodes) != 5 {
		t.Fatalf("%+v, %v", info, err)
	}
	for i, n := range info.Nodes {
		want := time.Duration(0)
		if i == 0 {
			want = time.Hour
		}
		if (n.Offset-want).Abs() > time.Second || !n.Holds && n.Err == nil {
			t.Errorf("node %d: %+v, want an offset of about %v", i, n, want)
		}
		if got := offsets.of(n.Name); (got - want).Abs() > time.Second {
			t.Errorf("the Tracer heard of an offset of %v for node %d", got, i)
		}
	}
	release(t, warm)
	var last int64
	for _, down := range [][]int{{3, 4}, {0, 1}, {3, 4}, {0, 2}, {1, 2}, {0, 1}, {2, 3}, {0, 4}} {
		for _, i := range down {
			ns[i].Pause()
		}
		for range 3 {
			lease := acquire(t, locks, "k", core.WithWait(5*time.Second))
			if lease.Fence() <= last {
				t.Fatalf("with nodes %v away: fence %d after %d", down, lease.Fence(), last)
			}
			last = lease.Fence()
			release(t, lease)
		}
		for _, i := range down {
			ns[i].Resume()
		}
	}
}

type clockTracer struct {
	silentTracer
	mu  sync.Mutex
	all map[string]time.Duration
}

func (c *clockTracer) ClockOffset(_, node string, offset time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[string]time.Duration{}
	}
	c.all[node] = offset
}

func (c *clockTracer) of(node string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[node]
}

// silentTracer is a Tracer that hears nothing.
type silentTracer struct{}

func (silentTracer) AcquireStart(ctx context.Context, _ core.AcquireStart) context.Context {
	return ctx
}
func (silentTracer) AcquireEnd(context.Context, core.AcquireEnd) any { return nil }
func (silentTracer) WaitStart(context.Context, string)               {}
func (silentTracer) WaitEnd(context.Context, string)                 {}
func (silentTracer) HoldStart(core.HoldStart)                        {}
func (silentTracer) HoldEnd(core.HoldEnd)                            {}
func (silentTracer) ReleaseStart(ctx context.Context, _ core.ReleaseStart) context.Context {
	return ctx
}
func (silentTracer) ReleaseEnd(context.Context, core.ReleaseEnd) {}
func (silentTracer) Renewed(core.Renewal)                        {}

// A node that is stopped costs a bounded number of goroutines, whatever it is owed.
func TestRedLockGoroutinesAreBounded(t *testing.T) {
	ns := startNodes(t, 5)
	locks := newLocks(t, ns.redlock())
	release(t, acquire(t, locks, "warm"))
	ns[2].Pause()
	before := runtime.NumGoroutine()
	var most atomic.Int64
	leases := make([]*core.Lease, 400)
	for i := range leases {
		leases[i] = acquire(t, locks, "k"+string(rune('a'+i%26))+time.Duration(i).String())
		most.Store(max(most.Load(), int64(runtime.NumGoroutine())))
	}
	for _, l := range leases {
		release(t, l)
		most.Store(max(most.Load(), int64(runtime.NumGoroutine())))
	}
	// What is given back to the node is owed once a trip to it has failed, after the node timeout.
	for end := time.Now().Add(2500 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
		most.Store(max(most.Load(), int64(runtime.NumGoroutine())))
	}
	if grown := int(most.Load()) - before; grown > 40 {
		t.Errorf("%d goroutines more with a node stopped", grown)
	}
	ns[2].Resume()
	eventually(t, 10*time.Second, "what the node is owed is paid", func() bool {
		keys, _ := ns[2].Client().Keys(t.Context(), "k*").Result()
		return len(keys) == 0
	})
}

// A release wakes a waiter of another process, whichever node tells of it, and none of them is hit by a node that hangs.
func TestRedLockWakesWaiters(t *testing.T) {
	ns := startNodes(t, 5)
	a, b := newLocks(t, ns.redlock()), newLocks(t, ns.redlock())
	for _, paused := range []int{-1, 0, 4} {
		if paused >= 0 {
			ns[paused].Pause()
		}
		lease := acquire(t, a, "k")
		got := make(chan time.Time, 1)
		go func() {
			next, err := b.Acquire(t.Context(), "k", core.WithWait(20*time.Second))
			if err != nil {
				t.Error(err)
			} else {
				got <- time.Now()
				next.Release(t.Context())
			}
			close(got)
		}()
		eventually(t, 5*time.Second, "b waits", func() bool {
			info, err := a.Inspect(t.Context(), "k")
			return err == nil && info.Waiters == 1
		})
		time.Sleep(50 * time.Millisecond) // it may not have subscribed yet; then it looks again
		released := time.Now()
		release(t, lease)
		if at := <-got; at.Sub(released) > 800*time.Millisecond {
			t.Errorf("node %d paused: woken after %v", paused, at.Sub(released))
		}
		<-got // released
		if paused >= 0 {
			ns[paused].Resume()
		}
	}
}

// Attempts that meet keep each other out of a majority; that is not mistaken for a holder.
func TestRedLockSplitVotesAreTriedAgain(t *testing.T) {
	ns := startNodes(t, 5)
	engines := make([]*core.Locks, 4)
	for i := range engines {
		engines[i] = newLocks(t, ns.redlock())
	}
	none := 0
	const rounds = 25
	for range rounds {
		var granted, holding atomic.Int64
		var all sync.WaitGroup
		start := make(chan struct{})
		for _, l := range engines {
			all.Go(func() {
				<-start
				lease, err := l.Acquire(t.Context(), "k")
				if err != nil {
					if !errors.Is(err, core.ErrNotAcquired) {
						t.Error(err)
					}
					return
				}
				granted.Add(1)
				if holding.Add(1) > 1 {
					t.Error("two hold at once")
				}
				time.Sleep(time.Millisecond)
				holding.Add(-1)
				lease.Release(t.Context())
			})
		}
		close(start)
		all.Wait()
		if granted.Load() == 0 {
			none++
		}
	}
	if none > rounds/5 {
		t.Errorf("in %d of %d rounds nobody got the free lock", none, rounds)
	}
}

// Two attempts of others that have kept each other out and are about to give back: whoever comes then gets the lock.
func TestRedLockSplitVoteOfOthers(t *testing.T) {
	ns := startNodes(t, 5)
	locks := newLocks(t, ns.redlock())
	release(t, acquire(t, locks, "k"))
	for i, rival := range []string{"one", "one", "other"} {
		ns[i].Client().Set(t.Context(), "k", rival, 20*time.Millisecond)
	}
	release(t, acquire(t, locks, "k"))
	for i := range 3 {
		ns[i].Client().Set(t.Context(), "k", "one", time.Minute)
	}
	_, err := locks.Acquire(t.Context(), "k")
	wantErr(t, err, core.ErrNotAcquired) // a holder, in all likelihood
}

func TestRedLockInspect(t *testing.T) {
	ns := startNodes(t, 3)
	ns.enrol(t)
	locks := newLocks(t, ns.redlock(core.WithNodeTimeout(core.DefaultNodeTimeout)))
	info, err := locks.Inspect(t.Context(), "k")
	if err != nil || info.Held || info.Waiters != 0 {
		t.Fatalf("%+v, %v", info, err)
	}
	lease := acquire(t, locks, "k", core.WithLabel("the holder"))
	ns[2].Pause()
	info, err = locks.Inspect(t.Context(), "k")
	if err != nil || !info.Held || len(info.Holders) != 1 || info.Holders[0].Label != "the holder" ||
		info.Holders[0].Fence != lease.Fence() || !info.Holders[0].Here || info.Holders[0].Remaining <= 0 {
		t.Errorf("%+v, %v", info, err)
	}
	if info.Nodes[2].Err == nil || info.Nodes[0].Err != nil || !info.Nodes[0].Holds || info.Nodes[0].Name != ns[0].Addr() {
		t.Errorf("nodes %+v", info.Nodes)
	}
	if strings.Contains(lease.Owner(), info.Holders[0].Label) {
		t.Error("the owner is told")
	}
	ns[1].Pause()
	_, err = locks.Inspect(t.Context(), "k")
	wantErr(t, err, core.ErrUnavailable)
	wantErr(t, locks.ForceRelease(t.Context(), "k"), core.ErrUnavailable)
	ns[1].Resume()
	ns[2].Resume()
	lease.Release(t.Context())
	keep := acquire(t, locks, "done")
	if err := keep.ReleaseAfter(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	info, err = locks.Inspect(t.Context(), "done")
	if err != nil || info.Held || !info.Completed {
		t.Errorf("%+v, %v", info, err)
	}
	_, err = locks.Acquire(t.Context(), "done")
	var busy *core.NotAcquiredError
	if !errors.As(err, &busy) || !busy.Completed || busy.RetryAfter <= 0 {
		t.Errorf("%v", err)
	}
}

// What the given client's settings are changes nothing: a node that refuses connections holds nobody up.
func TestRedLockBoundsEachNode(t *testing.T) {
	ns := startNodes(t, 3)
	ns.enrol(t)
	var clients []redis.UniversalClient
	for _, s := range ns {
		clients = append(clients, s.NewClient(func(o *redis.Options) {
			o.MaxRetries, o.DialerRetries, o.ReadTimeout = 10, 10, time.Minute
		}))
	}
	locks := newLocks(t, core.RedLock(clients))
	ns[2].Kill()
	const rounds = 20
	began := time.Now()
	for range rounds {
		release(t, acquire(t, locks, "k"))
	}
	if took := time.Since(began) / rounds; took > 200*time.Millisecond {
		t.Errorf("took %v with one node away", took)
	}
	ns[1].Kill()
	began = time.Now()
	_, err := locks.Acquire(t.Context(), "k")
	wantErr(t, err, core.ErrUnavailable)
	if took := time.Since(began); took > 2*core.DefaultNodeTimeout {
		t.Errorf("took %v with two away", took)
	}
	ns[1].Restart() // the clients dial still
	ns[2].Restart()
}
