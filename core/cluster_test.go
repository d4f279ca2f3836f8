package core_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// keysByMaster returns n keys for each master of the cluster.
func keysByMaster(t *testing.T, c *redistest.Cluster, n int) map[*redistest.Server][]string {
	t.Helper()
	keys := map[*redistest.Server][]string{}
	rdb := c.Client()
	byAddr := map[string]*redistest.Server{}
	for _, s := range c.Nodes() {
		byAddr[s.Addr()] = s
	}
	for i := 0; i < 10000; i++ {
		key := fmt.Sprintf("key%d", i)
		master, err := rdb.MasterForKey(context.Background(), key)
		if err != nil {
			t.Fatal(err)
		}
		s := byAddr[master.Options().Addr]
		if len(keys[s]) < n {
			keys[s] = append(keys[s], key)
		}
	}
	return keys
}

// One Cluster serves all that do not harm it for good.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *redistest.Cluster)
	}{
		{"AnyBytes", clusterAnyBytes},
		{"Crowd", clusterCrowd},
		{"BatchIsOneTripForEachNode", clusterBatchIsOneTripForEachNode},
		{"HungNodeHoldsUpItsOwnKeysOnly", clusterHungNodeHoldsUpItsOwnKeysOnly},
		{"SlotMoves", clusterSlotMoves},
		{"SlotOnItsWay", clusterSlotOnItsWay},
		{"ClientStaysTheUsers", clusterClientStaysTheUsers},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, cluster) })
	}
}

// L41, L48: any bytes are a key, and a key that is spelt like a companion of another is a lock of its own.
func clusterAnyBytes(t *testing.T, cluster *redistest.Cluster) {
	one, two := newLocks(t, core.Redis(cluster.Client())), newLocks(t, core.Redis(cluster.Client()))
	keys := []string{"}x", "{a}", "{}", "{}}", "a{b", "a}b{c}", "{a}{b}", "{{a}}", "x{\x00}y", strings.Repeat("k", 2048),
		strings.Repeat("{k}", 700), "line\r\nbreak", "nul\x00byte", "\xff\xfe\xfd", "%s%d", " ", "ключ", "latchkit~fence",
		"latchkit~wait:{k}", "latchkit~key:{a}b", "{latchkit~wait:}", "k"}
	ctx := context.Background()
	var leases []*core.Lease
	for _, key := range keys {
		lease := acquire(t, one, key)
		leases = append(leases, lease)
		if _, err := two.Acquire(ctx, key); !errors.Is(err, core.ErrNotAcquired) {
			t.Fatalf("%q: second holder: %v", key, err)
		}
	}
	for i, key := range keys {
		// With a waiter, so that its companion is written and read too.
		got := make(chan error, 1)
		go func() {
			lease, err := two.Acquire(ctx, key, core.WithWait(20*time.Second))
			if err == nil {
				if lease.Fence() <= leases[i].Fence() {
					err = fmt.Errorf("fence %d after %d", lease.Fence(), leases[i].Fence())
				}
				err = errors.Join(err, lease.Extend(ctx, time.Minute), lease.Release(ctx))
			}
			got <- err
		}()
		waitForWaiter(t, cluster, key)
		began := time.Now()
		release(t, leases[i])
		if err := <-got; err != nil {
			t.Fatalf("%q: waiter: %v", key, err)
		}
		if took := time.Since(began); took > 900*time.Millisecond {
			t.Errorf("%q: the waiter was woken after %v only", key, took)
		}
	}
	if _, err := one.Acquire(ctx, ""); !errors.Is(err, core.ErrInvalidKey) {
		t.Fatalf("empty key: %v", err)
	}
}

// waitForWaiter waits until somebody is subscribed to a channel on some node.
func waitForWaiter(t *testing.T, c *redistest.Cluster, key string) {
	t.Helper()
	eventually(t, 10*time.Second, fmt.Sprintf("a waiter for %q", key), func() bool {
		for _, n := range c.Nodes() {
			rdb := redis.NewClient(&redis.Options{Addr: n.Addr()})
			channels, err := rdb.PubSubShardChannels(context.Background(), "*").Result()
			rdb.Close()
			if err != nil {
				t.Fatal(err)
			}
			for _, channel := range channels {
				if strings.Contains(channel, key) || len(key) > 512 || strings.Contains(key, "latchkit~") {
					return true
				}
			}
		}
		return false
	})
}

// A crowd on keys of all nodes: mutual exclusion, growing fences, and no command to the wrong node once the slots are
// known.
func clusterCrowd(t *testing.T, cluster *redistest.Cluster) {
	engines := []*core.Locks{newLocks(t, core.Redis(cluster.Client())), newLocks(t, core.Redis(cluster.Client()))}
	const keys, workers, rounds = 24, 48, 20
	var counters [keys]int
	var fences [keys]int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for r := range rounds {
				k := (w*7 + r*5) % keys
				lease, err := engines[w%2].Acquire(context.Background(), fmt.Sprintf("crowd%d", k), core.WithWait(time.Minute))
				if err != nil {
					t.Errorf("acquire: %v", err)
					return
				}
				counters[k]++
				if lease.Fence() <= fences[k] {
					t.Errorf("fence %d after %d", lease.Fence(), fences[k])
				}
				fences[k] = lease.Fence()
				if err := lease.Release(context.Background()); err != nil {
					t.Errorf("release: %v", err)
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range counters {
		total += n
	}
	if total != workers*rounds {
		t.Errorf("%d holds counted, want %d", total, workers*rounds)
	}
}

// One batch is one trip for each node, and one call for each slot.
func clusterBatchIsOneTripForEachNode(t *testing.T, cluster *redistest.Cluster) {
	var log tripLog
	rdb := cluster.NewClient(func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled = true })
	rdb.OnNewNode(func(node *redis.Client) { node.AddHook(&log) })
	b := core.Redis(rdb)
	var ops []*core.Op
	for i := range 60 {
		ops = append(ops, &core.Op{Action: core.Try, Hold: core.Hold{Key: fmt.Sprint("batch", i), TTL: time.Minute},
			Owner: fmt.Sprintf("%032x", i), Fences: 1})
	}
	b.Do(context.Background(), ops[:1]) // the slots are known from here on
	for range 2 {                       // and in the second round the script as well
		for _, op := range ops {
			op.Verdict, op.Err = core.None, nil
		}
		log.reset()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		b.Do(ctx, ops)
		cancel()
	}
	for _, op := range ops {
		if op.Err != nil || op.Verdict != core.Granted {
			t.Fatalf("%q: %v, %v", op.Key, op.Verdict, op.Err)
		}
	}
	if pipelines, single := log.counts(); pipelines != 3 || single != 0 {
		t.Errorf("%d pipelines and %d single commands, want one pipeline for each of 3 nodes", pipelines, single)
	}
	b.(core.Closer).Close()
}

// tripLog counts what goes out.
type tripLog struct {
	mu                sync.Mutex
	pipelines, single int
	full              int // EVAL with the script's text
}

func (l *tripLog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pipelines, l.single, l.full = 0, 0, 0
}

func (l *tripLog) counts() (pipelines, single int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pipelines, l.single
}

func (l *tripLog) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *tripLog) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		l.mu.Lock()
		if name := cmd.Name(); strings.HasPrefix(name, "eval") {
			l.single++
			if name == "eval" {
				l.full++
			}
		}
		l.mu.Unlock()
		return next(ctx, cmd)
	}
}

func (l *tripLog) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		l.mu.Lock()
		if strings.HasPrefix(cmds[0].Name(), "eval") {
			l.pipelines++
		}
		l.mu.Unlock()
		return next(ctx, cmds)
	}
}

// A node that hangs holds up its own keys and no others, and is told apart by its route.
func clusterHungNodeHoldsUpItsOwnKeysOnly(t *testing.T, cluster *redistest.Cluster) {
	keys := keysByMaster(t, cluster, 2)
	b := core.Redis(cluster.Client())
	locks := newLocks(t, b)
	hung := cluster.Nodes()[0]
	for _, of := range keys {
		release(t, acquire(t, locks, of[0]))
	}
	if b.Route(keys[hung][0]) != hung.Addr() {
		t.Fatalf("route is %q, want %q", b.Route(keys[hung][0]), hung.Addr())
	}
	hung.Pause()
	defer hung.Resume()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			began := time.Now()
			if _, err := locks.Acquire(ctx, keys[hung][1]); err == nil {
				t.Error("acquired on a node that is stopped")
			}
			if took := time.Since(began); took > 900*time.Millisecond {
				t.Errorf("the caller's deadline of 300 ms was obeyed after %v", took)
			}
		})
	}
	for s, of := range keys {
		if s == hung {
			continue
		}
		for range 50 {
			began := time.Now()
			lease := acquire(t, locks, of[0])
			release(t, lease)
			if took := time.Since(began); took > 250*time.Millisecond {
				t.Errorf("a lock on a healthy node took %v", took)
			}
		}
	}
	wg.Wait()
}

// A slot that moves takes its locks along, under holders and under waiters.
func clusterSlotMoves(t *testing.T, cluster *redistest.Cluster) {
	one, two := newLocks(t, core.Redis(cluster.Client())), newLocks(t, core.Redis(cluster.Client()))
	lease := acquire(t, one, "{moving}", core.WithTTL(2*time.Second))
	got := make(chan *core.Lease, 1)
	go func() {
		next, err := two.Acquire(context.Background(), "{moving}", core.WithWait(time.Minute))
		if err != nil {
			t.Errorf("waiter: %v", err)
		}
		got <- next
	}()
	waitForWaiter(t, cluster, "{moving}")
	from, to := cluster.MigrateSlot("{moving}")
	if from == to {
		t.Fatal("the slot did not move")
	}
	// The subscription follows.
	eventually(t, 10*time.Second, "the subscription at the new node", func() bool {
		n, err := to.Client().PubSubShardChannels(context.Background(), "*").Result()
		return err == nil && len(n) == 1
	})
	if err := lease.Extend(context.Background(), 3*time.Second); err != nil {
		t.Fatalf("extend after the move: %v", err)
	}
	began := time.Now()
	release(t, lease)
	next := <-got
	if took := time.Since(began); took > 900*time.Millisecond {
		t.Errorf("the waiter was woken after %v only", took)
	}
	if next.Fence() <= lease.Fence() {
		t.Errorf("fence %d after %d", next.Fence(), lease.Fence())
	}
	release(t, next)
}

// While a slot is on its way nothing is granted twice, and what cannot be served is unavailable and not contended.
func clusterSlotOnItsWay(t *testing.T, cluster *redistest.Cluster) {
	locks, other := newLocks(t, core.Redis(cluster.Client())), newLocks(t, core.Redis(cluster.Client()))
	lease := acquire(t, locks, "{onitsway}")
	moving := cluster.StartMigration("{onitsway}")
	for step, move := range []func(){func() {}, moving.MoveKeys} {
		move()
		if _, err := other.Acquire(context.Background(), "{onitsway}"); !errors.Is(err, core.ErrNotAcquired) &&
			!errors.Is(err, core.ErrUnavailable) {
			t.Fatalf("step %d: %v", step, err)
		}
	}
	// What has moved as a whole is served already by the node to which it went.
	if err := lease.Extend(context.Background(), time.Minute); err != nil {
		t.Errorf("extend: %v", err)
	}
	moving.Finish()
	if _, err := other.Acquire(context.Background(), "{onitsway}"); !errors.Is(err, core.ErrNotAcquired) {
		t.Fatalf("after the move: %v", err)
	}
	release(t, lease)
	release(t, acquire(t, other, "{onitsway}"))
}

// A master that dies is replaced: the keys of its slots are served by the replica, within moments of its promotion, and
// fences go on growing.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	b := core.Redis(cluster.NewClient(func(o *redis.ClusterOptions) { o.ClusterStateReloadInterval = time.Hour }))
	locks := newLocks(t, b)
	const key = "{failover}"
	first := acquire(t, locks, key, core.WithReplicas(1, time.Second))
	release(t, first)
	old := cluster.MasterFor(key)
	old.Pause() // hangs: the worst way to go
	defer old.Resume()
	// Somebody keeps trying, as services do.
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(50 * time.Millisecond):
				ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
				if lease, err := locks.Acquire(ctx, "other"+key); err == nil {
					lease.Release(ctx)
				}
				cancel()
			}
		}
	}()
	replica := cluster.WaitFailover(key, old)
	began := time.Now()
	eventually(t, 10*time.Second, "a lease from the new master", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		lease, err := locks.Acquire(ctx, key)
		if err != nil {
			return false
		}
		if lease.Fence() <= first.Fence() {
			t.Errorf("fence %d after %d", lease.Fence(), first.Fence())
		}
		return lease.Release(context.Background()) == nil
	})
	t.Logf("served %v after the failover", time.Since(began))
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("served only %v after the failover", took)
	}
	if b.Route(key) != replica.Addr() {
		t.Errorf("route is %q, want that of the new master %q", b.Route(key), replica.Addr())
	}
}

// Nothing is sent to the given client's servers, nor to the client, that would change it.
func clusterClientStaysTheUsers(t *testing.T, cluster *redistest.Cluster) {
	rdb := cluster.NewClient(func(o *redis.ClusterOptions) { o.ReadTimeout = 7 * time.Second; o.MaxRetries = 5 })
	locks := newLocks(t, core.Redis(rdb))
	release(t, acquire(t, locks, "k"))
	if err := locks.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	master, err := rdb.MasterForKey(context.Background(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if o := master.Options(); o.ReadTimeout != 7*time.Second || o.MaxRetries != 5 || o.ContextTimeoutEnabled {
		t.Errorf("the client was changed: %+v", o)
	}
	if err := rdb.Set(context.Background(), "k2", bytes.Repeat([]byte("x"), 10), 0).Err(); err != nil {
		t.Errorf("the client was closed: %v", err)
	}
}
