package fallback

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

const (
	// opLimit is the engine's limit for one trip, and slack what two busy cores add to any time.
	opLimit = 2 * time.Second
	slack   = 700 * time.Millisecond

	openFor = 300 * time.Millisecond
)

func quick() Option {
	return WithBreaker(gobreaker.Settings{Timeout: openFor, ReadyToTrip: failing, Interval: 10 * time.Second})
}

// fault is what happens to a server.
type fault struct {
	name   string
	strike func(s *redistest.Server)
	mend   func(s *redistest.Server)
	denies bool // it refuses and does not go away: the breaker stays closed
}

func order(args ...any) func(*redistest.Server) {
	return func(s *redistest.Server) {
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
		defer rdb.Close()
		if err := rdb.Do(context.Background(), args...).Err(); err != nil {
			panic(fmt.Sprint(args, ": ", err))
		}
	}
}

var faults = []fault{
	{name: "stopped", strike: (*redistest.Server).Stop, mend: (*redistest.Server).Restart},
	{name: "killed", strike: (*redistest.Server).Kill, mend: (*redistest.Server).Restart},
	{name: "paused", strike: (*redistest.Server).Pause, mend: (*redistest.Server).Resume},
	{name: "read-only", strike: order("replicaof", "127.0.0.1", "1"), mend: order("replicaof", "no", "one")},
	{name: "full", strike: order("config", "set", "maxmemory", "1"), mend: order("config", "set", "maxmemory", "0")},
	{name: "restricted", strike: order("acl", "setuser", "default", "-evalsha", "-eval"),
		mend: order("acl", "setuser", "default", "+@all"), denies: true},
}

// TestRealServersComeAndGo has one process lock under load while its server suffers every fault in turn: once, or for
// 60 s with LATCHKIT_LONG=1.
func TestRealServersComeAndGo(t *testing.T) {
	t.Parallel() // it mostly waits
	server := redistest.Start(t)
	b := wrap(t, core.Redis(server.Client()), quick())
	locks := engine(t, b, core.WithTTL(3*time.Second), core.WithPrefix("flap:"))
	w := newWorkload(t, locks, 8, 4)
	began := time.Now()
	for round := 0; round == 0 || os.Getenv("LATCHKIT_LONG") != "" && time.Since(began) < time.Minute; round++ {
		for _, f := range faults {
			w.suffer(b, server, f)
		}
	}
	w.end()
	for i := range w.keys {
		lease := acquire(t, locks, fmt.Sprint("k", i), core.WithWait(4*time.Second)) // what is left goes with its TTL
		if lease.Degraded() || lease.Fence() == 0 {
			t.Errorf("%q: degraded %v, fence %d", lease.Key(), lease.Degraded(), lease.Fence())
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if n := b.ledger.size(time.Now().Add(4 * time.Second)); n != 0 {
		t.Errorf("%d entries are left in the ledger", n)
	}
	t.Logf("%d leases, %d of them degraded, %d refused, %d denied, %d unavailable; slowest acquire %v", w.leases.Load(),
		w.local.Load(), w.busy.Load(), w.denials.Load(), w.failures.Load(), time.Duration(w.slowest.Load()))
}

// workload is goroutines that lock.
type workload struct {
	t     *testing.T
	locks *core.Locks
	keys  []keeper
	stop  chan struct{}
	wg    sync.WaitGroup

	leases, local, busy, denials, failures, slowest atomic.Int64
}

func newWorkload(t *testing.T, locks *core.Locks, workers, keys int) *workload {
	w := &workload{t: t, locks: locks, keys: make([]keeper, keys), stop: make(chan struct{})}
	for i := range workers {
		w.wg.Go(func() { w.work(i) })
	}
	return w
}

func (w *workload) end() {
	close(w.stop)
	w.wg.Wait()
}

func (w *workload) work(i int) {
	for n := i; ; n++ {
		select {
		case <-w.stop:
			return
		default:
			w.once(n%len(w.keys), time.Duration(n%2)*200*time.Millisecond)
		}
	}
}

func (w *workload) once(key int, wait time.Duration) {
	began := time.Now()
	lease, err := w.locks.Acquire(context.Background(), fmt.Sprint("k", key), core.WithWait(wait))
	took := time.Since(began)
	if took > wait+opLimit+slack {
		w.t.Errorf("an acquire that may wait for %v took %v: %v", wait, took, err)
	}
	if took := int64(took); took > w.slowest.Load() {
		w.slowest.Store(took)
	}
	switch {
	case err == nil:
	case errors.Is(err, core.ErrNotAcquired):
		w.busy.Add(1)
	case errors.Is(err, core.ErrDenied):
		w.denials.Add(1)
	case errors.Is(err, core.ErrUnavailable):
		w.failures.Add(1)
	default:
		w.t.Error(err)
	}
	if err != nil {
		time.Sleep(2 * time.Millisecond)
		return
	}
	w.leases.Add(1)
	if lease.Degraded() {
		w.local.Add(1)
		if lease.Fence() != 0 {
			w.t.Errorf("a degraded lease has fence %d", lease.Fence())
		}
	}
	w.keys[key].enter(w.t, lease)
	time.Sleep(time.Duration(1+key*3) * time.Millisecond)
	w.keys[key].leave(lease)
	lease.Release(context.Background())
}

// suffer has the server suffer f, and waits until it is seen, and seen to be over.
func (w *workload) suffer(b *Backend, server *redistest.Server, f fault) {
	w.t.Helper()
	local, denials := w.local.Load(), w.denials.Load()
	f.strike(server)
	began := time.Now()
	if f.denies {
		w.until(f.name+": denials", slack+time.Second, func() bool { return w.denials.Load() > denials+10 })
		if w.local.Load() > local || b.State() != gobreaker.StateClosed {
			w.t.Errorf("%s: %d local leases, breaker %v", f.name, w.local.Load()-local, b.State())
		}
		f.mend(server)
		return
	}
	w.until(f.name+": local leases", 3*opLimit, func() bool { return w.local.Load() > local+100 })
	w.t.Logf("%s: served locally after %v", f.name, time.Since(began).Round(time.Millisecond))
	f.mend(server)
	began = time.Now()
	w.until(f.name+": recovery", openFor+time.Second+slack, func() bool { return b.State() == gobreaker.StateClosed })
	took := time.Since(began)
	if took > openFor+time.Second {
		w.t.Errorf("%s: recovery took %v", f.name, took)
	}
	leases := w.leases.Load() - w.local.Load()
	w.until(f.name+": stored leases", opLimit+slack, func() bool { return w.leases.Load()-w.local.Load() > leases+20 })
	w.t.Logf("%s: recovered in %v", f.name, took.Round(time.Millisecond))
}

func (w *workload) until(what string, limit time.Duration, done func() bool) {
	w.t.Helper()
	soon(w.t, what, limit, done)
}

// TestTwoProcessesOverlapOnlyWhereALeaseSaysSo cuts one of two processes off from a server that goes on.
func TestTwoProcessesOverlapOnlyWhereALeaseSaysSo(t *testing.T) {
	t.Parallel() // it mostly waits
	server := redistest.Start(t)
	proxy := server.Proxy(t)
	cut := wrap(t, core.Redis(proxy.NewClient(nil)), quick())
	processes := []*core.Locks{
		engine(t, cut, core.WithTTL(time.Second)),
		engine(t, wrap(t, core.Redis(server.Client()), quick()), core.WithTTL(time.Second)),
	}
	var site site
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				lease, err := processes[i%2].Acquire(context.Background(), "k", core.WithWait(100*time.Millisecond))
				if err != nil {
					continue
				}
				site.visit(t, i%2, lease, time.Duration(1+n%40)*20*time.Millisecond)
				lease.Release(context.Background())
				time.Sleep(time.Millisecond)
			}
		})
	}
	for _, harm := range []func(){proxy.Refuse, proxy.Cut} {
		visits, overlaps := site.seen()
		soon(t, "both are at work", 20*time.Second, func() bool { now, _ := site.seen(); return now > visits+20 })
		harm()
		soon(t, "the one that is cut off works beside the other", 20*time.Second, func() bool { _, now := site.seen(); return now > overlaps+2 })
		proxy.Restore()
		soon(t, "the breaker closes", openFor+time.Second+slack, func() bool { return cut.State() == gobreaker.StateClosed })
	}
	close(stop)
	wg.Wait()
	t.Logf("%d visits, %d overlaps, each flagged", site.visits, site.overlaps)
}

// site is where holders meet.
type site struct {
	mu               sync.Mutex
	here             map[*core.Lease]int
	visits, overlaps int
}

func (s *site) seen() (visits, overlaps int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.visits, s.overlaps
}

func (s *site) visit(t *testing.T, process int, lease *core.Lease, stay time.Duration) {
	s.mu.Lock()
	if s.here == nil {
		s.here = map[*core.Lease]int{}
	}
	s.here[lease] = process
	s.visits++
	s.look(t)
	s.mu.Unlock()
	select {
	case <-time.After(stay):
	case <-lease.Context().Done():
	}
	s.mu.Lock()
	s.look(t)
	delete(s.here, lease)
	s.mu.Unlock()
}

// look judges who is here. A lease that has just been lost is on its way out.
func (s *site) look(t *testing.T) {
	var count, degraded int
	per := map[int]int{}
	for lease, process := range s.here {
		if lease.Remaining() == 0 {
			continue
		}
		count++
		if per[process]++; per[process] > 1 {
			t.Errorf("process %d has two holders", process)
		}
		if lease.Degraded() {
			degraded++
		}
	}
	if count > 1 {
		s.overlaps++
		if degraded == 0 {
			t.Error("two holders, and neither is degraded")
		}
	}
}

// F2, on a server that hangs: callers who never have the patience to see a trip fail, with a deadline or a bare cancel, do
// not keep the breaker closed.
func TestF2ImpatientCallersOfAServerThatHangs(t *testing.T) {
	for name, obeys := range map[string]bool{"as it comes": false, "with ContextTimeoutEnabled": true} {
		for how, impatient := range map[string]func(context.Context) (context.Context, context.CancelFunc){
			"deadlines": func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, 50*time.Millisecond)
			},
			"cancels": func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(50*time.Millisecond, cancel)
				return ctx, cancel
			},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel() // it mostly waits
				server := redistest.Start(t)
				b := wrap(t, core.Redis(server.NewClient(func(o *redis.Options) { o.ContextTimeoutEnabled = obeys })))
				locks := engine(t, b)
				if lease := acquire(t, locks, "k"); lease.Degraded() || lease.Release(t.Context()) != nil {
					t.Fatal("the server is not used while it is there")
				}
				server.Pause()
				began := time.Now()
				for n := 0; b.State() == gobreaker.StateClosed; n++ {
					ctx, cancel := impatient(t.Context())
					if lease, err := locks.Acquire(ctx, fmt.Sprint("k", n%3)); err == nil {
						_ = lease.Release(ctx)
					}
					cancel()
					if time.Since(began) > 40*time.Second {
						t.Fatalf("the breaker is closed after %d calls in 40 s", n)
					}
				}
				t.Logf("open after %v", time.Since(began))
				if lease := acquire(t, locks, "other"); !lease.Degraded() || lease.Release(t.Context()) != nil {
					t.Error("not served here while the server hangs")
				}
				server.Resume()
			})
		}
	}
}

func TestL39WhatAServerSaysWhenItCannotServe(t *testing.T) {
	for _, f := range faults {
		if f.name == "stopped" || f.name == "paused" {
			continue // L8
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			b := wrap(t, core.Redis(server.NewClient(func(o *redis.Options) { o.MaxRetries = -1 })), after(3))
			held := try(b, exclusive("held"))
			f.strike(server)
			op := try(b, exclusive("k"))
			if f.denies { // L40
				if !errors.Is(op.Err, core.ErrDenied) || errors.Is(op.Err, core.ErrUnavailable) {
					t.Errorf("verdict %d, err %v", op.Verdict, op.Err)
				}
			} else if !errors.Is(op.Err, core.ErrUnavailable) {
				t.Errorf("verdict %d, err %v", op.Verdict, op.Err)
			}
			if f.name == "read-only" && !redis.IsReadOnlyError(op.Err) {
				t.Errorf("the cause is not kept: %v", op.Err)
			}
			f.mend(server)
			if f.name != "killed" {
				want(t, release(b, held), core.OK, false)
			}
		})
	}
}
