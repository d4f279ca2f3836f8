package core_test

import (
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

// What can happen between a client and its server.

// L10: replies later than the client's read timeout, and a client that would send again: held once, and one release
// frees.
func TestReplySlowerThanTheClient(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, obeys := range map[string]bool{"as it comes": false, "with ContextTimeoutEnabled": true} {
		s := redistest.Start(t)
		admin, proxy := s.Client(), s.Proxy(t)
		rdb := proxy.NewClient(func(o *redis.Options) {
			o.ReadTimeout, o.MaxRetries, o.ContextTimeoutEnabled = 100*time.Millisecond, 5, obeys
		})
		locks := newLocks(t, core.Redis(rdb))
		release(t, acquire(t, locks, "warm"))
		proxy.Latency(200 * time.Millisecond)
		before := commandCalls(t, admin, "evalsha")
		lease, err := locks.Acquire(ctx, "k", core.WithTTL(time.Minute))
		if obeys {
			// Its read timeout is its own will, and too short for this server: that must leave nothing.
			if !errors.Is(err, core.ErrUnavailable) {
				t.Fatalf("%s: %v, want ErrUnavailable", name, err)
			}
			proxy.Restore()
			eventually(t, 10*time.Second, "that what was in doubt is undone", func() bool {
				return admin.Exists(ctx, "k").Val() == 0
			})
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if n := commandCalls(t, admin, "evalsha") - before; n != 1 {
			t.Errorf("%s: sent %d times", name, n)
		}
		release(t, lease)
		if n := admin.Exists(ctx, "k").Val(); n != 0 {
			t.Errorf("%s: one release did not free", name)
		}
	}
}

// releasing is a Backend in which another lets go of the key at the very moment before a waiter subscribes.
type releasing struct {
	core.Backend
	once    sync.Once
	release func()
}

func (r *releasing) Watch(ctx context.Context, key string, wake func(by, next string)) (func(), error) {
	r.once.Do(r.release)
	return r.Backend.(core.Watcher).Watch(ctx, key, wake)
}

// L14: a release between the try that failed and the subscription.
func TestReleaseBeforeTheSubscription(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	lease := acquire(t, newLocks(t, core.Redis(rdb)), "k", core.WithTTL(time.Minute))
	b := &releasing{Backend: core.Redis(rdb), release: func() { release(t, lease) }}
	t.Cleanup(func() { b.Backend.(core.Closer).Close() })
	locks := newLocks(t, b)
	began := time.Now()
	release(t, acquire(t, locks, "k", core.WithWait(time.Minute)))
	if took := time.Since(began); took > 500*time.Millisecond {
		t.Errorf("acquired after %v only", took)
	}
}

// L15: the subscription's connection is killed under waiters, again and again. They are woken as before.
func TestSubscriptionsAreKilled(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	admin := redistest.Start(t)
	rdb := admin.Client()
	holder, waiting := newLocks(t, core.Redis(rdb)), newLocks(t, core.Redis(admin.Client()))
	const keys = 12
	var leases [keys]*core.Lease
	key := func(i int) string { return fmt.Sprint("k", i) }
	for i := range leases {
		leases[i] = acquire(t, holder, key(i), core.WithTTL(time.Minute))
	}
	var wg sync.WaitGroup
	woken := make(chan int, keys)
	for i := range keys {
		wg.Go(func() {
			lease, err := waiting.Acquire(ctx, key(i), core.WithWait(time.Minute))
			if err != nil {
				t.Error(err)
			} else if err := lease.Release(ctx); err != nil {
				t.Error(err)
			}
			woken <- i
		})
	}
	subscribed := func() bool {
		channels, err := rdb.PubSubChannels(ctx, "latchkit~wait:*").Result()
		return err == nil && len(channels) == keys
	}
	for range 3 {
		eventually(t, 10*time.Second, "all subscriptions", subscribed)
		if killed, err := rdb.ClientKillByFilter(ctx, "TYPE", "pubsub").Result(); err != nil || killed != 1 {
			t.Fatalf("killed %d connections (%v), want the one of all waiters", killed, err)
		}
	}
	// Half of the releases happen with nobody subscribed, half afterwards.
	for i := range keys {
		if i == keys/2 {
			eventually(t, 10*time.Second, "the remaining subscriptions", func() bool {
				return len(rdb.PubSubChannels(ctx, "latchkit~wait:*").Val()) >= keys/2
			})
		}
		began := time.Now()
		release(t, leases[i])
		select {
		case <-woken:
		case <-time.After(5 * time.Second):
			t.Fatalf("waiter %d was never woken", i)
		}
		if took := time.Since(began); took > 900*time.Millisecond {
			t.Errorf("waiter %d was woken after %v only", i, took)
		}
	}
	wg.Wait()
}

// served is a Backend and its servers.
type served struct {
	backend core.Backend
	servers []*redistest.Server
	kinds   bool // it carries more than exclusive holds
}

// everyBackend starts servers for each Backend that speaks to some.
func everyBackend(t *testing.T) map[string]served {
	single, cluster, independent := redistest.Start(t), redistest.StartCluster(t, 3, 0), startNodes(t, 3)
	independent.enrol(t)
	return map[string]served{
		"redis":     {core.Redis(single.Client()), []*redistest.Server{single}, true},
		"timestamp": {core.Timestamp(single.Client()), []*redistest.Server{single}, false},
		"cluster":   {core.Redis(cluster.Client()), cluster.Nodes(), true},
		"redlock":   {independent.redlock(), independent, false},
	}
}

func (s served) calls(t *testing.T, command string) (n int64) {
	t.Helper()
	for _, server := range s.servers {
		n += commandCalls(t, server.Client(), command)
	}
	return n
}

func (s served) forget(t *testing.T) {
	t.Helper()
	for _, server := range s.servers {
		must(t, server.Client().ScriptFlush(context.Background()).Err())
	}
}

// useEveryScript does with key all that is done by scripts, and calls between after each.
func (s served) useEveryScript(t *testing.T, locks *core.Locks, key string, between func()) {
	t.Helper()
	ctx := context.Background()
	kinds := [][]core.Option{nil}
	if s.kinds {
		kinds = append(kinds, []core.Option{core.WithShared()}, []core.Option{core.WithLimit(2)}, []core.Option{core.WithFair()})
	}
	for _, opts := range kinds {
		lease := acquire(t, locks, key, opts...)
		between()
		must(t, lease.Extend(ctx, time.Minute))
		between()
		if info, err := locks.Inspect(ctx, key); err != nil || !info.Held {
			t.Errorf("inspect: %+v, %v", info, err)
		}
		between()
		release(t, lease)
		between()
		acquire(t, locks, key, opts...)
		between()
		must(t, locks.ForceRelease(ctx, key))
		between()
	}
	all := acquireAll(t, locks, []string{"{" + key + "}1", "{" + key + "}2"})
	between()
	must(t, all.Release(ctx))
	between()
}

// L46: a server that forgets its scripts is told them again, for lone callers and for batches, whatever is done.
func TestScriptsAreForgotten(t *testing.T) {
	t.Parallel()
	for name, s := range everyBackend(t) {
		locks := newLocks(t, s.backend)
		s.useEveryScript(t, locks, name, func() { s.forget(t) })
		for round := range 3 {
			var ops []*core.Op
			for i := range 40 {
				ops = append(ops, &core.Op{Action: core.Try, Hold: core.Hold{Key: fmt.Sprint(name, round, "-", i), TTL: time.Minute},
					Owner: strings.Repeat("a", 32), Fences: 1})
			}
			limited, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			s.backend.Do(limited, ops)
			cancel()
			for _, op := range ops {
				if op.Verdict != core.Granted {
					t.Fatalf("%s: %q: %v, %v", name, op.Key, op.Verdict, op.Err)
				}
			}
			s.forget(t)
		}
	}
}

// L47: once the server knows the scripts their text is not sent again, whatever is done.
func TestScriptsAreSentOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, s := range everyBackend(t) {
		one, two := newLocks(t, s.backend), newLocks(t, s.backend)
		work := func() {
			s.useEveryScript(t, one, name, func() {})
			var wg sync.WaitGroup
			for w := range 16 {
				wg.Go(func() {
					locks := one
					if w%2 == 0 {
						locks = two
					}
					for range 8 {
						lease, err := locks.Acquire(ctx, fmt.Sprint(name, w%5), core.WithWait(time.Minute))
						if err != nil {
							t.Error(err)
							return
						}
						if err := errors.Join(lease.Extend(ctx, time.Minute), lease.Release(ctx)); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
		}
		work()
		full, short := s.calls(t, "eval"), s.calls(t, "evalsha")
		work()
		if n := s.calls(t, "eval") - full; n != 0 {
			t.Errorf("%s: the script's text was sent %d times more", name, n)
		}
		if n := s.calls(t, "evalsha") - short; n == 0 {
			t.Errorf("%s: nothing was sent at all", name)
		}
	}
}

// The user's client is closed under holders and waiters: they are told with their next poll, and nothing is left running.
func TestClientIsClosed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := redistest.Start(t)
	cluster := redistest.StartCluster(t, 1, 0)
	for name, rdb := range map[string]redis.UniversalClient{"one server": s.Client(), "cluster": cluster.Client()} {
		locks := newLocks(t, core.Redis(rdb))
		lease := acquire(t, locks, "held", core.WithTTL(time.Minute))
		other := acquire(t, newLocks(t, core.Redis(map[string]redis.UniversalClient{"one server": s.Client(), "cluster": cluster.Client()}[name])), "busy")
		got := make(chan error, 1)
		go func() {
			_, err := locks.Acquire(ctx, "busy", core.WithWait(time.Minute))
			got <- err
		}()
		eventually(t, 10*time.Second, "a waiter", func() bool {
			return rdb.Exists(ctx, "latchkit~wait:{busy}").Val() == 1
		})
		began := time.Now()
		rdb.Close()
		if err := <-got; !errors.Is(err, redis.ErrClosed) || !errors.Is(err, core.ErrClosed) {
			t.Errorf("%s: the waiter got %v, want ErrClosed and its cause", name, err)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("%s: the waiter was told after %v", name, took)
		}
		if _, err := locks.Acquire(ctx, "more"); !errors.Is(err, core.ErrClosed) {
			t.Errorf("%s: acquire: %v, want ErrClosed", name, err)
		}
		if err := lease.Release(ctx); err == nil {
			t.Errorf("%s: released over a closed client", name)
		}
		release(t, other)
	}
}

// A server that hangs holds up Close for a moment only.
func TestCloseWhileTheServerHangs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := redistest.Start(t)
	locks, other := newLocks(t, core.Redis(s.Client())), newLocks(t, core.Redis(s.Client()))
	acquire(t, other, "busy")
	got := make(chan error, 1)
	go func() {
		_, err := locks.Acquire(ctx, "busy", core.WithWait(time.Minute))
		got <- err
	}()
	admin := s.Client()
	eventually(t, 10*time.Second, "a waiter", func() bool { return admin.Exists(ctx, "latchkit~wait:{busy}").Val() == 1 })
	s.Pause()
	defer s.Resume()
	began := time.Now()
	if err := locks.Close(ctx); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
	// A poll may have been under way.
	if err := <-got; !errors.Is(err, core.ErrClosed) && !errors.Is(err, core.ErrUnavailable) {
		t.Errorf("the waiter got %v, want ErrClosed", err)
	}
}
