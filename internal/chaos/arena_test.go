package chaos

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/history"
	"github.com/latchkit/latchkit/internal/redistest"
)

const (
	ttl = 800 * time.Millisecond
	// failoverTTL is longer than a failover takes, so that leases are live when another server takes over.
	failoverTTL = 5 * time.Second
	// patience is how long work may take to begin, and to go on after a fault has healed.
	patience = 30 * time.Second
	// settled is how many holds each worker must have finished for that.
	settled = 4
)

// arena is where one row takes place: servers, workers, and the register that the locks protect.
type arena struct {
	testing.TB
	rng      *rand.Rand
	servers  []*redistest.Server
	proxies  []*redistest.Proxy
	sentinel *redistest.SentinelSet
	cluster  *redistest.Cluster
	admin    *redis.Conn // to the first server, opened before the fault

	order    order
	workers  []*worker
	register *history.Register
	paths    []string
	staged   sync.WaitGroup
	disk     string // of smallDisk
}

// setup starts the servers of an arena.
type setup func(a *arena, opts ...redistest.Option)

func oneServer(a *arena, opts ...redistest.Option) {
	a.servers = []*redistest.Server{redistest.Start(a.TB, opts...)}
	a.order.Backend, a.order.Addrs = "redis", []string{a.servers[0].Addr()}
}

func faketime(a *arena, opts ...redistest.Option) {
	oneServer(a, append(opts, redistest.WithFaketime("+0"))...)
}

func durable(a *arena, opts ...redistest.Option) {
	oneServer(a, append(opts, redistest.WithPersistence())...)
}

// proxied is one durable server behind a network that can be harmed.
func proxied(a *arena, opts ...redistest.Option) {
	durable(a, opts...)
	a.proxies = []*redistest.Proxy{a.servers[0].Proxy(a.TB)}
	a.order.Addrs = []string{a.proxies[0].Addr()}
}

func withFallback(a *arena, opts ...redistest.Option) {
	proxied(a, opts...)
	a.order.Backend = "fallback"
}

func sentinels(a *arena, opts ...redistest.Option) {
	a.sentinel = redistest.StartSentinel(a.TB, 1, 3, opts...)
	a.order.TTL = failoverTTL
	a.servers = a.sentinel.Nodes()
	a.order.Backend = "sentinel"
	for _, s := range a.sentinel.Sentinels() {
		a.order.Addrs = append(a.order.Addrs, s.Addr())
	}
}

func clusterOf(replicas int) setup {
	return func(a *arena, opts ...redistest.Option) {
		a.cluster = redistest.StartCluster(a.TB, 3, replicas, opts...)
		a.order.TTL = failoverTTL
		a.servers = a.cluster.Nodes()
		a.order.Backend, a.order.Addrs = "cluster", a.cluster.Addrs()
	}
}

// redLock is five servers, each behind a network of its own.
func redLock(a *arena, opts ...redistest.Option) {
	a.servers = redistest.StartN(a.TB, 5, opts...)
	a.order.Backend, a.order.MaxTTL = "redlock", 2*time.Second
	for _, s := range a.servers {
		p := s.Proxy(a.TB)
		a.proxies = append(a.proxies, p)
		a.order.Addrs = append(a.order.Addrs, p.Addr())
	}
}

func redLockFaketime(a *arena, opts ...redistest.Option) {
	redLock(a, append(opts, redistest.WithFaketime("+0"))...)
}

// The mixes of tasks.
var (
	exclusiveOnly = []task{
		{Request: history.Request{Key: "one"}, Wait: time.Second, Hold: 20 * time.Millisecond},
		{Request: history.Request{Key: "one"}, Hold: 20 * time.Millisecond},
		{Request: history.Request{Key: "two{x}"}, Wait: time.Second, Hold: 10 * time.Millisecond},
	}
	allKinds = append([]task{
		{Request: history.Request{Key: "one", Fair: true}, Wait: time.Second, Hold: 20 * time.Millisecond},
		{Request: history.Request{Key: "readers", Kind: core.Shared}, Wait: time.Second, Hold: 20 * time.Millisecond},
		{Request: history.Request{Key: "readers"}, Wait: time.Second, Hold: 10 * time.Millisecond},
		{Request: history.Request{Key: "three", Kind: core.Limited, Limit: 3}, Wait: time.Second, Hold: 40 * time.Millisecond},
	}, exclusiveOnly...)
)

// The first goroutine of each worker has two keys of its own, of which it asks without waiting: one that is nearly always
// held, by holds that a fault meets in their midst, and one that is nearly always free, for stage.
const longKey, stagedKey = "long", "staged"

func firsts(ttl time.Duration) []task {
	return []task{
		{Request: history.Request{Key: longKey}, Hold: ttl},
		{Request: history.Request{Key: stagedKey}, Hold: 2 * time.Millisecond, Steady: true},
	}
}

// newArena starts servers and workers, and waits until work is under way.
func newArena(t testing.TB, seed uint64, servers setup) *arena {
	t.Helper()
	a := &arena{TB: t, rng: rand.New(rand.NewPCG(seed, 0)), register: history.NewRegister()}
	a.order.TTL, a.order.Goroutines = ttl, 3
	servers(a)
	a.order.Mix, a.order.First = allKinds, firsts(a.order.TTL)
	if a.order.Backend == "redlock" {
		a.order.Mix = exclusiveOnly
	}
	a.serveRegister()
	for range 3 {
		a.addWorker()
	}
	a.awaitWork()
	a.connect()
	return a
}

func (a *arena) connect() {
	rdb := a.servers[0].Client()
	a.admin = rdb.Conn()
	a.must("PING")
	a.Cleanup(func() { a.admin.Close() })
}

func (a *arena) serveRegister() {
	path := filepath.Join(a.TempDir(), "r")
	l, err := net.Listen("unix", path)
	if err != nil {
		a.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { a.register.Serve(l) })
	a.Cleanup(func() {
		l.Close()
		a.staged.Wait()
		for _, w := range a.workers {
			w.cmd.Process.Kill()
		}
		served.Wait()
	})
	a.order.Register = path
}

func (a *arena) addWorker() *worker {
	o := a.order
	o.Process = fmt.Sprintf("worker-%d", len(a.workers)+1)
	o.Seed = a.rng.Uint64()
	o.History = filepath.Join(a.TempDir(), o.Process)
	w := startWorker(a.TB, o)
	a.workers = append(a.workers, w)
	a.paths = append(a.paths, o.History)
	return w
}

// stage takes stagedKey in this process, returns when it is held, and goes on holding it for more than a TTL, without a
// look at what becomes of it.
func (a *arena) stage() {
	a.Helper()
	backend, closeClients, err := a.order.open()
	if err != nil {
		a.Fatal(err)
	}
	locks, err := core.New(backend, core.WithTTL(a.order.TTL))
	if err != nil {
		a.Fatal(err)
	}
	path := filepath.Join(a.TempDir(), "stage")
	recorder, err := history.Create(path, "stage")
	if err != nil {
		a.Fatal(err)
	}
	a.paths = append(a.paths, path)
	granted := make(chan struct{})
	h := hand{order: a.order, locks: locks, recorder: recorder, rng: rand.New(rand.NewPCG(1, 1)), out: io.Discard,
		granted: sync.OnceFunc(func() { close(granted) })}
	h.Mix = []task{{Request: history.Request{Key: stagedKey}, Wait: time.Second, Hold: a.order.TTL * 3 / 2, Steady: true, Careless: true}}
	ctx, cancel := context.WithCancel(context.Background())
	a.staged.Go(func() {
		defer closeClients()
		defer locks.Close(ctx)
		if err := h.run(ctx); err != nil {
			a.Errorf("stage: %v", err)
		}
		recorder.Close()
	})
	select {
	case <-granted:
	case <-time.After(10 * time.Second):
		a.Error("nothing could be staged")
	}
	cancel() // no further hold
}

// awaitWork waits until every worker that lives has finished a few holds more, and returns how long that took.
func (a *arena) awaitWork() time.Duration {
	a.Helper()
	began := time.Now()
	for _, w := range a.workers {
		if w.killed {
			continue
		}
		for want := w.finished.Load() + settled; w.finished.Load() < want; {
			select {
			case <-w.done:
				a.Fatalf("%s ended: %v\n%s", w.Process, w.cmd.ProcessState, w.said.String())
			case <-time.After(5 * time.Millisecond):
			}
			if time.Since(began) > patience {
				a.Fatalf("%s does not get on: %d holds in %v", w.Process, w.finished.Load(), time.Since(began))
			}
		}
	}
	return time.Since(began)
}

// last is how long a fault lasts: half a TTL to two.
func (a *arena) last() {
	time.Sleep(ttl/2 + time.Duration(a.rng.Int64N(int64(3*ttl/2))))
}

// must has the first server do something, over a connection that stood before the fault.
func (a *arena) must(args ...any) {
	a.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cmd := redis.NewCmd(ctx, args...)
	if err := a.admin.Process(ctx, cmd); err != nil {
		a.Fatalf("%v: %v", args, err)
	}
}

func (a *arena) server() *redistest.Server { return a.servers[0] }
func (a *arena) proxy() *redistest.Proxy   { return a.proxies[0] }

// anyWorker is one that lives.
func (a *arena) anyWorker() *worker {
	for {
		if w := a.workers[a.rng.IntN(len(a.workers))]; !w.killed {
			return w
		}
	}
}

// some are n different servers.
func (a *arena) some(n int) []int { return a.rng.Perm(len(a.servers))[:n] }
