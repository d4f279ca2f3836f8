package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// A failover that forgets the lock: its holder is told, and the next one has a greater fence.
func TestSentinelFailoverForgets(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	set := redistest.StartSentinel(t, 2, 3)
	holder, other := newLocks(t, core.Redis(set.Client())), newLocks(t, core.Redis(set.Client()))
	release(t, acquire(t, other, "warm"))

	// The replicas stay behind.
	master := set.Nodes()[0].Client()
	must(t, master.Do(ctx, "ACL", "SETUSER", "default", "-psync", "-sync").Err())
	must(t, master.Do(ctx, "CLIENT", "KILL", "TYPE", "replica").Err())
	for _, replica := range set.Nodes()[1:] {
		rdb := replica.Client()
		eventually(t, 10*time.Second, "a replica that is cut off", func() bool {
			return strings.Contains(rdb.Info(ctx, "replication").Val(), "master_link_status:down")
		})
	}
	lease := acquire(t, holder, "k", core.WithTTL(20*time.Second))
	set.Nodes()[0].Kill()
	set.WaitFailover(t)

	var next *core.Lease
	eventually(t, 10*time.Second, "a lease from the new master", func() bool {
		var err error
		next, err = other.Acquire(ctx, "k", core.WithTTL(20*time.Second))
		if err != nil && !errors.Is(err, core.ErrUnavailable) {
			t.Fatalf("the new master says %v", err)
		}
		return err == nil
	})
	if next.Fence() <= lease.Fence() {
		t.Errorf("fence %d after %d", next.Fence(), lease.Fence())
	}
	select {
	case <-lease.Context().Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the holder was not told")
	}
	wantErr(t, context.Cause(lease.Context()), core.ErrLost)
	wantErr(t, lease.Release(ctx), core.ErrLost)
	release(t, next)
}

// With replicas that have the lock it outlives its master: the holder never notices, and others stay out. Waiters follow.
func TestSentinelFailoverRemembers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	set := redistest.StartSentinel(t, 2, 3)
	holder, other := newLocks(t, core.Redis(set.Client())), newLocks(t, core.Redis(set.Client()))
	lease := acquire(t, holder, "k", core.WithTTL(20*time.Second), core.WithReplicas(2, time.Second))
	set.Nodes()[0].Kill()
	set.WaitFailover(t)
	eventually(t, 10*time.Second, "an answer of the new master", func() bool {
		_, err := other.Acquire(ctx, "k")
		if err == nil {
			t.Fatal("two holders")
		}
		return errors.Is(err, core.ErrNotAcquired)
	})
	if err := lease.Extend(ctx, 20*time.Second); err != nil {
		t.Fatalf("extend after the failover: %v", err)
	}
	got := make(chan error, 1)
	go func() {
		next, err := other.Acquire(ctx, "k", core.WithWait(20*time.Second))
		if err == nil {
			if next.Fence() <= lease.Fence() {
				t.Errorf("fence %d after %d", next.Fence(), lease.Fence())
			}
			err = next.Release(ctx)
		}
		got <- err
	}()
	rdb := set.Client()
	eventually(t, 10*time.Second, "a waiter at the new master", func() bool {
		return rdb.PubSubNumSub(ctx, "latchkit~wait:{k}").Val()["latchkit~wait:{k}"] == 1
	})
	began := time.Now()
	release(t, lease)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 900*time.Millisecond {
		t.Errorf("the waiter was woken after %v only", took)
	}
}

// A lock that too few replicas have in time is none, and nothing of it stays.
func TestReplicasThatDoNotCome(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	servers := redistest.StartN(t, 3, redistest.WithArgs("--repl-diskless-sync-delay", "0"))
	master := servers[0].Client()
	host, port, _ := strings.Cut(servers[0].Addr(), ":")
	for _, s := range servers[1:] {
		must(t, s.Client().ReplicaOf(ctx, host, port).Err())
	}
	eventually(t, 10*time.Second, "two replicas", func() bool {
		n, err := master.Wait(ctx, 2, 100*time.Millisecond).Result()
		return err == nil && n == 2 && strings.Contains(master.Info(ctx, "replication").Val(), "connected_slaves:2")
	})
	for name, b := range map[string]core.Backend{"redis": core.Redis(servers[0].Client()), "timestamp": core.Timestamp(servers[0].Client())} {
		locks := newLocks(t, b)
		release(t, acquire(t, locks, name, core.WithReplicas(2, time.Second)))
	}
	servers[1].Pause()
	for name, b := range map[string]core.Backend{"redis": core.Redis(servers[0].Client()), "timestamp": core.Timestamp(servers[0].Client())} {
		locks := newLocks(t, b)
		release(t, acquire(t, locks, name, core.WithReplicas(1, time.Second)))
		_, err := locks.Acquire(ctx, name, core.WithReplicas(2, 50*time.Millisecond))
		if !errors.Is(err, core.ErrUnavailable) || !strings.Contains(err.Error(), "1 of 2 replicas") {
			t.Errorf("%s: %v, want that 1 of 2 replicas have it", name, err)
		}
		if n := master.Exists(ctx, name).Val(); n != 0 {
			t.Errorf("%s: the lock stays", name)
		}
		// Those who do not ask for replicas are not held up by those who do.
		var waiting sync.WaitGroup
		for i := range 6 {
			waiting.Go(func() { locks.Acquire(ctx, fmt.Sprint(name, i), core.WithReplicas(2, 500*time.Millisecond)) })
		}
		for range 20 {
			began := time.Now()
			release(t, acquire(t, locks, "other"))
			if took := time.Since(began); took > 200*time.Millisecond {
				t.Errorf("%s: a lock without replicas took %v", name, took)
			}
		}
		waiting.Wait()
	}
}

func TestReplicasOutOfRange(t *testing.T) {
	for _, o := range []core.Option{core.WithReplicas(-1, time.Second), core.WithReplicas(65, time.Second), core.WithReplicas(1, 0),
		core.WithReplicas(1, 2*time.Second)} {
		if _, err := core.New(core.Local(), o); !errors.Is(err, core.ErrInvalidOption) {
			t.Errorf("%v, want ErrInvalidOption", err)
		}
	}
	locks := newLocks(t, core.Local(), core.WithReplicas(0, 0))
	if _, err := locks.Acquire(context.Background(), "k", core.WithReplicas(1, time.Second)); !errors.Is(err, core.ErrInvalidOption) {
		t.Errorf("local: %v, want ErrInvalidOption", err)
	}
	release(t, acquire(t, locks, "k"))
}

func TestClientsThatAreRefused(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}, HeartbeatFrequency: time.Hour})
	defer ring.Close()
	var noClient *redis.Client
	var noCluster *redis.ClusterClient
	for name, rdb := range map[string]redis.UniversalClient{"ring": ring, "nil": nil, "nil client": noClient, "nil cluster": noCluster} {
		for _, b := range []core.Backend{core.Redis(rdb), core.Timestamp(rdb)} {
			if _, err := core.New(b); !errors.Is(err, core.ErrInvalidOption) {
				t.Errorf("%s: %v, want ErrInvalidOption", name, err)
			}
		}
	}
}

// A client of some other kind is taken for one server, and obeys all the same.
func TestWrappedClient(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	type wrapper struct{ redis.UniversalClient }
	locks := newLocks(t, core.Redis(wrapper{s.NewClient(func(o *redis.Options) { o.ReadTimeout = 3 * time.Second })}))
	lease := acquire(t, locks, "k")
	release(t, lease)
	if _, err := locks.Acquire(context.Background(), "k", core.WithReplicas(1, time.Second)); !errors.Is(err, core.ErrInvalidOption) {
		t.Errorf("replicas: %v, want ErrInvalidOption", err)
	}
	s.Pause()
	defer s.Resume()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := locks.Acquire(ctx, "k"); err == nil {
		t.Error("acquired from a server that is stopped")
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("the caller's deadline of 100 ms was obeyed after %v", took)
	}
}

// A plain client of a Cluster's only server works; of one of several, its mistake is named.
func TestPlainClientOfACluster(t *testing.T) {
	t.Parallel()
	one := redistest.StartCluster(t, 1, 0)
	locks := newLocks(t, core.Redis(one.Nodes()[0].Client()))
	var ops []*core.Op
	for _, key := range []string{"a", "b", "c"} {
		release(t, acquire(t, locks, key))
		ops = append(ops, &core.Op{Action: core.Try, Hold: core.Hold{Key: key, TTL: time.Minute}, Owner: strings.Repeat("0", 32), Fences: 1})
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	core.Redis(one.Nodes()[0].Client()).Do(ctx, ops)
	for _, op := range ops {
		if op.Verdict != core.Granted {
			t.Errorf("%q: %v, %v", op.Key, op.Verdict, op.Err)
		}
	}

	two := redistest.StartCluster(t, 3, 0)
	locks = newLocks(t, core.Redis(two.Nodes()[0].Client()))
	wrong := 0
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		lease, err := locks.Acquire(context.Background(), key)
		switch {
		case err == nil:
			release(t, lease)
		case errors.Is(err, core.ErrInvalidOption):
			wrong++
		default:
			t.Errorf("%q: %v", key, err)
		}
	}
	if wrong == 0 {
		t.Error("no key was elsewhere")
	}
}

// A client that treats a Sentinel set as a Cluster of one: it shares counters with the other kind of client, and follows
// a failover.
func TestSentinelSetAsACluster(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	set := redistest.StartSentinel(t, 1, 3)
	// redis.NewFailoverClusterClient is this, with a goroutine that its Close forgets.
	var master atomic.Value
	master.Store(set.Master().Addr())
	rdb := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: master.Load().(string)}}}}, nil
	}})
	t.Cleanup(func() { rdb.Close() })
	one, two := newLocks(t, core.Redis(rdb)), newLocks(t, core.Redis(set.Client()))
	last := int64(0)
	for i := range 20 {
		lease := acquire(t, []*core.Locks{one, two}[i%2], "k")
		if _, err := []*core.Locks{two, one}[i%2].Acquire(ctx, "k"); !errors.Is(err, core.ErrNotAcquired) {
			t.Fatalf("a second holder: %v", err)
		}
		if lease.Fence() <= last {
			t.Errorf("fence %d after %d", lease.Fence(), last)
		}
		last = lease.Fence()
		release(t, lease)
	}
	set.Nodes()[0].Kill()
	master.Store(set.WaitFailover(t).Addr())
	eventually(t, 20*time.Second, "a lease from the new master", func() bool {
		lease, err := one.Acquire(ctx, "k")
		if err != nil {
			return false
		}
		if lease.Fence() <= last {
			t.Errorf("fence %d after %d", lease.Fence(), last)
		}
		return lease.Release(ctx) == nil
	})
}
