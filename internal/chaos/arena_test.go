package chaos

import (
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
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
	// redLockTTL gives the nodes, which are told to answer within a quarter of it, more time on a machine that is busy.
	redLockTTL = 1600 * time.Millisecond
	// patience is how long work may take to begin, and to go on after a fault has healed: far longer than it does, for the
	// machine may be busy with other tests.
	patience = 90 * time.Second
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

// fastClock is a server whose clock runs nearly as much too fast as holders allow for. They hold until their time is
// over, when others are there already.
func fastClock(a *arena, opts ...redistest.Option) {
	oneServer(a, append(opts, redistest.WithFaketime("x1.009"))...)
	a.order.TTL = failoverTTL
	a.order.Mix = []task{{Request: history.Request{Key: "one"}, Hold: a.order.TTL, Steady: true, Expires: true}}
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
	a.order.Backend, a.order.TTL, a.order.MaxTTL, a.order.Mix = "redlock", redLockTTL, 2*time.Second, readersToo
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
	readersToo = []task{
		{Request: history.Request{Key: "one"}, Wait: time.Second, Hold: 20 * time.Millisecond},
		{Request: history.Request{Key: "one"}, Hold: 20 * time.Millisecond},
		{Request: history.Request{Key: "two{x}"}, Wait: time.Second, Hold: 10 * time.Millisecond},
		{Request: history.Request{Key: "readers", Kind: core.Shared}, Wait: time.Second, Hold: 20 * time.Millisecond},
		{Request: history.Request{Key: "readers"}, Wait: time.Second, Hold: 10 * time.Millisecond},
	}
	allKinds = append([]task{
		{Request: history.Request{Key: "one", Fair: true}, Wait: time.Second, Hold: 20 * time.Millisecond},
		{Request: history.Request{Key: "three", Kind: core.Limited, Limit: 3}, Wait: time.Second, Hold: 40 * time.Millisecond},
	}, readersToo...)
)

// The first goroutine of each worker has two keys of its own, of which it asks without waiting: one that is nearly always
// held, by holds that a fault meets in their midst, and one that is nearly always free, for a victim.
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
	a.order.TTL, a.order.Mix, a.order.Goroutines = ttl, allKinds, 3
	servers(a)
	a.order.First = firsts(a.order.TTL)
	a.serveRegister()
	for range 3 {
		a.addWorker()
	}
	a.awaitWork()
	a.connect()
	return a
}

// connect opens a connection to the first server, for what is done to it from within.
func (a *arena) connect() {
	a.admin = a.client(a.server()).Conn()
	a.must("PING")
	a.Cleanup(func() { a.admin.Close() })
}

// client returns one that is patient.
func (a *arena) client(s *redistest.Server) *redis.Client {
	return s.NewClient(func(o *redis.Options) { o.DialTimeout, o.ReadTimeout, o.WriteTimeout = patience, patience, patience })
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

// awaitWork waits until every worker that lives has finished a few holds more, and returns how long that took.
func (a *arena) awaitWork() time.Duration {
	a.Helper()
	began := time.Now()
	for _, w := range a.workers {
		if !w.killed {
			want := w.finished() + settled
			a.await(w.Process+" gets on", func() bool { return w.finished() >= want })
		}
	}
	return time.Since(began)
}

// await polls until met, and ends the row when that does not come.
func (a *arena) await(what string, met func() bool) {
	a.Helper()
	for began := time.Now(); !met(); time.Sleep(5 * time.Millisecond) {
		for _, w := range a.workers {
			if w.ended() && !w.killed {
				a.Fatalf("%s ended: %v\n%s", w.Process, w.cmd.ProcessState, w.said.String())
			}
		}
		if time.Since(began) > patience {
			a.Fatalf("not within %v: %s\n%s", patience, what, refusals(a.paths, began))
		}
	}
}

// last lets a fault last for half a TTL to two, and where a fallback is to step in, until it has.
func (a *arena) last() {
	time.Sleep(ttl/2 + time.Duration(a.rng.Int64N(int64(3*ttl/2))))
	if a.order.Backend == "fallback" {
		a.await("a lease without Redis", func() bool {
			return a.someHold(func(r report) bool { return r.degraded })
		})
	}
}

// someHold tells whether a worker has finished such a hold.
func (a *arena) someHold(such func(report) bool) bool {
	return slices.ContainsFunc(a.workers, func(w *worker) bool { return w.has(such) })
}

// must has the first server do something, over a connection that stood before the fault.
func (a *arena) must(args ...any) {
	a.Helper()
	if err := a.admin.Process(a.Context(), redis.NewCmd(a.Context(), args...)); err != nil {
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
