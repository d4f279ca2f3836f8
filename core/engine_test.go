package core_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// L3: the same Options value in two calls that fail: each waits its whole time anew.
func TestOptionsCarryNoState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := newLocks(t, core.Local())
		acquire(t, locks, "k")
		opt := core.WithWait(700 * time.Millisecond)
		for range 3 {
			began := time.Now()
			_, err := locks.Acquire(t.Context(), "k", opt)
			wantErr(t, err, core.ErrNotAcquired)
			if took := time.Since(began); took != 700*time.Millisecond {
				t.Errorf("waited %v, want 700ms", took)
			}
		}
	})
}

func TestQueueIsServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := newLocks(t, core.Local())
		first := acquire(t, locks, "k")
		var order []int
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				lease, err := locks.Acquire(t.Context(), "k", core.WithWait(core.Forever))
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				lease.Release(t.Context())
			})
			synctest.Wait()
		}
		release(t, first)
		wg.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("served %v, want arrival's order", order)
			}
		}
	})
}

// An attempt that may not wait is refused by a holder of its own process without a trip, and does not push past a queue.
func TestRefusalInTheProcessNeedsNoTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		locks := newLocks(t, b)
		lease := acquire(t, locks, "k")
		tries := b.count(core.Try)
		for range 100 {
			_, err := locks.Acquire(t.Context(), "k")
			wantErr(t, err, core.ErrNotAcquired)
		}
		if n := b.count(core.Try) - tries; n != 0 {
			t.Errorf("%d trips", n)
		}
		release(t, lease)
	})
}

// One that meets an attempt under way shares its verdict: refused if it was, unavailable if it was, never "busy" then.
func TestAttemptUnderWayIsShared(t *testing.T) {
	for name, answer := range map[string]struct {
		bend func(*core.Op)
		want error
	}{
		"granted":     {func(*core.Op) {}, core.ErrNotAcquired},
		"unavailable": {down, core.ErrUnavailable},
		"refused":     {func(op *core.Op) { op.Verdict, op.Left = core.Refused, time.Second }, core.ErrNotAcquired},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newScripted()
				locks := newLocks(t, b)
				answered := make(chan struct{})
				b.set(func(_ context.Context, op *core.Op) bool {
					if op.Action != core.Try {
						return false
					}
					<-answered
					answer.bend(op)
					return op.Err != nil || op.Verdict != core.None
				}, nil)
				go locks.Acquire(t.Context(), "k")
				synctest.Wait()
				errs := make(chan error, 10)
				for range 10 {
					go func() {
						_, err := locks.Acquire(t.Context(), "k")
						errs <- err
					}()
				}
				synctest.Wait()
				close(answered)
				for range 10 {
					wantErr(t, <-errs, answer.want)
				}
				want := 1
				if name == "unavailable" {
					want = 3 // the engine's own retries
				}
				if n := b.count(core.Try); n != want {
					t.Errorf("%d tries for 11 callers, want %d", n, want)
				}
			})
		})
	}
}

// A verdict on the backend ends the whole queue: nobody spends his own two seconds to learn the same.
func TestUnavailableEndsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		locks := newLocks(t, b)
		hang := make(chan struct{})
		b.set(func(_ context.Context, op *core.Op) bool {
			<-hang
			down(op)
			return true
		}, nil)
		errs := make(chan error, 20)
		for range 20 {
			go func() {
				_, err := locks.Acquire(t.Context(), "k", core.WithWait(core.Forever))
				errs <- err
			}()
		}
		synctest.Wait()
		began := time.Now()
		close(hang)
		for range 20 {
			wantErr(t, <-errs, core.ErrUnavailable)
		}
		if took := time.Since(began); took > time.Second || b.count(core.Try) != 3 {
			t.Errorf("20 waiters learned it after %v and %d tries", took, b.count(core.Try))
		}
		b.set(nil, nil)
		release(t, acquire(t, locks, "k"))
	})
}

// L6: cancelled after the command was sent and before its reply: the key goes, nothing renews it.
func TestCancelInFlightIsUndone(t *testing.T) {
	server := redistest.Start(t)
	proxy := server.Proxy(t)
	rdb := proxy.NewClient(nil)
	locks := newLocks(t, core.Redis(rdb), core.WithTTL(20*time.Second))
	release(t, acquire(t, locks, "warm"))
	direct := server.Client()
	calls := func() int64 { return commandCalls(t, direct, "evalsha") }
	before := calls()
	proxy.Latency(150 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := locks.Acquire(ctx, "k")
	wantErr(t, err, context.DeadlineExceeded)
	if took := time.Since(began); took > time.Second {
		t.Errorf("the deadline of 40 ms was obeyed after %v", took)
	}
	eventually(t, 5*time.Second, "the command lands late", func() bool { return calls() > before })
	eventually(t, 5*time.Second, "it is undone", func() bool {
		return calls() > before+1 && direct.Exists(t.Context(), "k").Val() == 0
	})
}

// L8: Redis hangs during Release.
func TestReleaseFromAHungServer(t *testing.T) {
	server := redistest.Start(t)
	locks := newLocks(t, core.Redis(server.Client()), core.WithTTL(3*time.Second))
	lease := acquire(t, locks, "k")
	server.Pause()
	began := time.Now()
	err := lease.Release(t.Context())
	took := time.Since(began)
	server.Resume()
	wantErr(t, err, core.ErrUnavailable)
	if took > 3*time.Second {
		t.Errorf("release from a hung server took %v, its limit is 2 s", took)
	}
	wantErr(t, lease.Release(t.Context()), core.ErrNotHeld)
	eventually(t, 5*time.Second, "the key is freed when the server is back", func() bool {
		return server.Client().Exists(t.Context(), "k").Val() == 0
	})
}

// L9: a thousand acquires that are cancelled and released at random leave no renewal behind.
func TestNothingIsRenewedAfterRandomEnds(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client()
	locks := newLocks(t, core.Redis(rdb), core.WithTTL(600*time.Millisecond))
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), rand.N(30*time.Millisecond))
			defer cancel()
			lease, err := locks.Acquire(ctx, "k"+string(rune('a'+i%26)), core.WithWait(core.Forever))
			if err != nil {
				return
			}
			time.Sleep(rand.N(2 * time.Millisecond))
			lease.Release(ctx)
		})
	}
	wg.Wait()
	left := map[string]time.Duration{}
	eventually(t, 10*time.Second, "every lock is gone", func() bool {
		none := true
		for c := 'a'; c <= 'z'; c++ {
			key := "k" + string(c)
			ttl := rdb.PTTL(t.Context(), key).Val()
			if ttl > 0 {
				none = false
				if last, ok := left[key]; ok && ttl > last+5*time.Millisecond {
					t.Errorf("%s: the TTL grew from %v to %v with nobody holding it", key, last, ttl)
				}
				left[key] = ttl
			}
		}
		return none
	})
}

// L13, the server's side of it: the key is another's by then.
func TestHolderThatWasPausedLearnsIt(t *testing.T) {
	server := redistest.Start(t)
	one := newLocks(t, core.Redis(server.Client()), core.WithTTL(300*time.Millisecond), core.WithoutRenewal())
	two := newLocks(t, core.Redis(server.Client()))
	paused := acquire(t, one, "k")
	next, err := two.Acquire(t.Context(), "k", core.WithWait(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	<-paused.Context().Done()
	wantErr(t, context.Cause(paused.Context()), core.ErrLost)
	wantErr(t, paused.Release(t.Context()), core.ErrLost)
	if next.Fence() <= paused.Fence() {
		t.Errorf("fence %d after %d: a store could not refuse the paused holder", next.Fence(), paused.Fence())
	}
	release(t, next)
}

// L16: a waiter to whom nobody publishes costs a bounded number of commands, and next to no time of the processor.
func TestIdleWaitersAreCheap(t *testing.T) {
	server := redistest.Start(t)
	holder := newLocks(t, core.Redis(server.Client()))
	waiting := newLocks(t, core.Redis(server.Client()))
	lease := acquire(t, holder, "k")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 1000 {
		wg.Go(func() {
			_, err := waiting.Acquire(ctx, "k", core.WithWait(core.Forever))
			if !errors.Is(err, context.Canceled) {
				t.Errorf("waiter: %v", err)
			}
		})
	}
	rdb := server.Client()
	calls := func() int64 { return commandCalls(t, rdb, "evalsha") }
	eventually(t, 10*time.Second, "the waiters wait", func() bool { return calls() >= 2 })
	before, began, busy := calls(), time.Now(), processorTime()
	time.Sleep(3 * time.Second) // the time over which commands are counted
	n := calls() - before
	if took := processorTime() - busy; took > time.Since(began)/20 {
		t.Errorf("1,000 idle waiters kept the processor busy for %v in 3 s", took)
	}
	if most := int64(time.Since(began)/time.Second) + 3; n > most {
		t.Errorf("1,000 idle waiters sent %d commands in 3 s, want at most %d", n, most)
	}
	cancel()
	wg.Wait()
	release(t, lease)
}

// processorTime is for how long this process has run Go code.
func processorTime() time.Duration {
	runtime.GC() // which brings the metric up to date
	sample := []metrics.Sample{{Name: "/cpu/classes/user:cpu-seconds"}}
	metrics.Read(sample)
	return time.Duration(sample[0].Value.Float64() * float64(time.Second))
}

// L33, the part of one server: fences grow across deletion, expiry, force and restarts.
func TestFencesGrowWhateverHappensToTheServer(t *testing.T) {
	for name, memory := range map[string]struct {
		options []redistest.Option
		restart func(*redistest.Server)
	}{
		"no memory": {nil, (*redistest.Server).RestartEmpty},
		"all of it": {[]redistest.Option{redistest.WithArgs("--appendonly", "yes")}, (*redistest.Server).Restart},
		// Which is of long before, and has a smaller counter than what was given since.
		"a snapshot": {[]redistest.Option{redistest.WithArgs("--save", "3600 1000000")}, (*redistest.Server).Restart},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fencesGrow(t, redistest.Start(t, memory.options...), memory.restart)
		})
	}
}

func fencesGrow(t *testing.T, server *redistest.Server, restart func(*redistest.Server)) {
	rdb := server.Client()
	locks := newLocks(t, core.Redis(rdb), core.WithTTL(200*time.Millisecond), core.WithoutRenewal())
	var last int64
	grow := func(what string) *core.Lease {
		t.Helper()
		var lease *core.Lease
		eventually(t, 10*time.Second, "acquire after "+what, func() (ok bool) {
			var err error
			lease, err = locks.Acquire(t.Context(), "k", core.WithWait(time.Second))
			return err == nil
		})
		if lease.Fence() <= last {
			t.Fatalf("after %s: fence %d, was %d", what, lease.Fence(), last)
		}
		last = lease.Fence()
		return lease
	}
	many := func() {
		for range 1700 {
			lease := grow("release")
			if err := lease.Release(t.Context()); err != nil && !errors.Is(err, core.ErrLost) { // slow machines let it run out
				t.Fatal(err)
			}
		}
	}
	many()
	must(t, rdb.Save(t.Context()).Err()) // a snapshot that will be old
	many()
	grow("release")
	must(t, rdb.Del(t.Context(), "k").Err())
	grow("DEL")
	grow("expiry")
	must(t, locks.ForceRelease(t.Context(), "k"))
	grow("ForceRelease")
	server.Kill()
	restart(server)
	grow("a restart")
	must(t, rdb.FlushAll(t.Context()).Err())
	grow("FLUSHALL")
}

// Hand-offs must not run ahead of what a server that loses its memory starts with.
func TestHandOffFencesStayBehindTheClock(t *testing.T) {
	server := redistest.Start(t)
	locks := newLocks(t, core.Redis(server.Client()))
	var wg sync.WaitGroup
	var greatest atomic.Int64
	for range 64 {
		wg.Go(func() {
			for range 500 {
				lease, err := locks.Acquire(t.Context(), "k", core.WithWait(core.Forever))
				if err != nil {
					t.Error(err)
					return
				}
				if f := lease.Fence(); f <= greatest.Load() {
					t.Errorf("fence %d after %d", f, greatest.Load())
				} else {
					greatest.Store(f)
				}
				lease.Release(t.Context())
			}
		})
	}
	wg.Wait()
	now, err := server.Client().Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	if greatest.Load() > now.UnixMicro() {
		t.Errorf("fence %d is ahead of the server's clock %d", greatest.Load(), now.UnixMicro())
	}
}

// Nobody outside starves while a crowd inside passes the key on.
func TestHandOffLetsOthersIn(t *testing.T) {
	server := redistest.Start(t)
	inside := newLocks(t, core.Redis(server.Client()))
	outside := newLocks(t, core.Redis(server.Client()))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for ctx.Err() == nil {
				lease, err := inside.Acquire(ctx, "k", core.WithWait(core.Forever))
				if err == nil {
					lease.Release(ctx)
				}
			}
		})
	}
	for range 20 {
		began := time.Now()
		lease, err := outside.Acquire(t.Context(), "k", core.WithWait(10*time.Second))
		if err != nil {
			t.Fatalf("starved: %v", err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("waited %v behind a crowd of another process", took)
		}
		release(t, lease)
	}
	cancel()
	wg.Wait()
}

// L45: of 100,000 callers for one key those past the limit are refused with words that say why, and cost no memory.
func TestWaitersAreBounded(t *testing.T) {
	locks := newLocks(t, core.Local())
	lease := acquire(t, locks, "k")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	const callers, limit = 100_000, 16_384
	for range limit {
		wg.Go(func() {
			if _, err := locks.Acquire(ctx, "k", core.WithWait(core.Forever)); !errors.Is(err, context.Canceled) {
				t.Errorf("waiter: %v", err)
			}
		})
	}
	eventually(t, 30*time.Second, "the queue is full", func() bool { return locks.Queued("k") == limit })
	before := memoryInUse()
	var refused sync.WaitGroup
	for range 16 {
		refused.Go(func() {
			for range (callers - limit) / 16 {
				_, err := locks.Acquire(ctx, "k", core.WithWait(core.Forever))
				if !errors.Is(err, core.ErrTooManyWaiters) || !strings.Contains(err.Error(), `"k" has 16384`) {
					t.Errorf("past the limit: %v", err)
					return
				}
			}
		})
	}
	refused.Wait()
	if more := memoryInUse() - before; more > 1<<20 {
		t.Errorf("%d refusals take %d bytes", callers-limit, more)
	}
	if n := locks.Queued("k"); n != limit {
		t.Errorf("%d wait, want %d", n, limit)
	}
	cancel()
	wg.Wait()
	if left := memoryInUse() - before; left > 1<<20 {
		t.Errorf("%d bytes more than while they waited", left)
	}
	release(t, lease)
	release(t, acquire(t, locks, "k"))
}

// memoryInUse is what lives on the heap and on stacks.
func memoryInUse() int64 {
	for range 3 { // what was in a sync.Pool takes two
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func TestNoGoroutinePerLease(t *testing.T) {
	server := redistest.Start(t)
	locks := newLocks(t, core.Redis(server.Client()))
	release(t, acquire(t, locks, "warm"))
	before := runtime.NumGoroutine()
	var leases []*core.Lease
	for i := range 2000 {
		leases = append(leases, acquire(t, locks, "k"+string(rune(i))))
	}
	if n := runtime.NumGoroutine() - before; n > 10 {
		t.Errorf("2,000 leases run %d goroutines", n)
	}
	for _, lease := range leases {
		release(t, lease)
	}
}

// A wait that ends without the lock leaves nothing in Redis that would make holders cut their hand-offs short.
func TestSpentWaitLeavesTheQueueInRedis(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client()
	one, two := newLocks(t, core.Redis(rdb)), newLocks(t, core.Redis(rdb))
	lease := acquire(t, one, "k")
	done := make(chan error)
	go func() {
		_, err := two.Acquire(t.Context(), "k", core.WithWait(300*time.Millisecond))
		done <- err
	}()
	eventually(t, 5*time.Second, "the waiter is known in Redis", func() bool {
		return rdb.ZCard(t.Context(), "latchkit~wait:{k}").Val() == 1
	})
	wantErr(t, <-done, core.ErrNotAcquired)
	eventually(t, 5*time.Second, "the waiter is gone from Redis", func() bool {
		return rdb.ZCard(t.Context(), "latchkit~wait:{k}").Val() == 0
	})
	release(t, lease)
}
