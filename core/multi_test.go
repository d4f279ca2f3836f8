package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// oneStore runs test on each backend of one store.
func oneStore(t *testing.T, test func(t *testing.T, b core.Backend)) {
	t.Run("local", func(t *testing.T) { test(t, core.Local()) })
	t.Run("embedded", func(t *testing.T) { test(t, core.Redis(redistest.Embedded(t))) })
	t.Run("redis", func(t *testing.T) { test(t, core.Redis(redistest.Start(t).Client())) })
}

// plain hides that a Locker is a *Locks.
func plain(l core.Locker) core.Locker { return core.LockerFunc(l.Acquire) }

func acquireAll(t testing.TB, l core.Locker, keys []string, opts ...core.Option) *core.MultiLease {
	t.Helper()
	m, err := core.AcquireAll(context.Background(), l, keys, opts...)
	if err != nil {
		t.Fatalf("acquire all of %q: %v", keys, err)
	}
	return m
}

func TestAcquireAllTakesAllOrNone(t *testing.T) {
	oneStore(t, func(t *testing.T, b core.Backend) {
		one, two := newLocks(t, b), newLocks(t, b)
		for name, l := range map[string]core.Locker{"together": one, "in turn": plain(one)} {
			t.Run(name, func(t *testing.T) {
				m := acquireAll(t, l, []string{"c", "a", "b", "a"})
				var keys []string
				for _, lease := range m.Leases() {
					keys = append(keys, lease.Key())
					if lease.Fence() == 0 || lease.Remaining() <= 0 {
						t.Errorf("lease of %q: fence %d, remaining %v", lease.Key(), lease.Fence(), lease.Remaining())
					}
					if _, err := two.Acquire(t.Context(), lease.Key()); !errors.Is(err, core.ErrNotAcquired) {
						t.Errorf("acquire %q beside it: %v", lease.Key(), err)
					}
					inner, err := one.Acquire(m.Context(), lease.Key())
					if err != nil || inner.Fence() != lease.Fence() {
						t.Fatalf("re-entry of %q: %v", lease.Key(), err)
					}
					release(t, inner)
				}
				if want := []string{"a", "b", "c"}; !slices.Equal(keys, want) {
					t.Errorf("leases of %q, want %q", keys, want)
				}
				again, err := core.AcquireAll(m.Context(), l, []string{"b", "d"})
				if err != nil {
					t.Fatalf("all, some of which are held by the caller: %v", err)
				}
				if err := again.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := context.Cause(m.Context()); err != nil {
					t.Fatalf("an inner release ended it: %v", err)
				}
				if err := m.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				wantErr(t, context.Cause(m.Context()), core.ErrReleased)
				wantErr(t, m.Release(t.Context()), core.ErrNotHeld)

				held := acquire(t, two, "b")
				_, err = core.AcquireAll(t.Context(), l, []string{"a", "b", "c"})
				var busy *core.NotAcquiredError
				if !errors.As(err, &busy) || busy.Key != "b" || busy.RetryAfter <= 0 {
					t.Fatalf("with one held: %v", err)
				}
				for _, free := range []string{"a", "c"} {
					release(t, acquire(t, two, free))
				}
				release(t, held)
				if n := len(one.Leases()); n != 0 {
					t.Errorf("%d leases are left", n)
				}
			})
		}
		if _, err := core.AcquireAll(t.Context(), one, nil); !errors.Is(err, core.ErrInvalidKey) {
			t.Errorf("no keys: %v", err)
		}
		if _, err := core.AcquireAll(t.Context(), one, []string{"a", ""}); !errors.Is(err, core.ErrInvalidKey) {
			t.Errorf("an empty key: %v", err)
		}
	})
}

func TestL21AcquireAllInOppositeOrders(t *testing.T) {
	oneStore(t, func(t *testing.T, b core.Backend) {
		engines := []*core.Locks{newLocks(t, b), newLocks(t, b)}
		const rounds = 1000
		var a, both atomic.Int64
		var wg sync.WaitGroup
		for i := range 4 {
			keys := []string{"a", "b"}
			if i%2 == 1 {
				keys = []string{"b", "a", "b"}
			}
			var l core.Locker = engines[i/2]
			if i == 2 {
				l = plain(l) // in turn, while the others take both together where they can
			}
			wg.Go(func() {
				for range rounds / 4 {
					m, err := core.AcquireAll(t.Context(), l, keys, core.WithWait(time.Minute))
					if err != nil {
						t.Errorf("%q: %v", keys, err)
						return
					}
					if a.Add(1) != 1 || len(m.Leases()) != 2 {
						t.Error("two hold at once")
					}
					both.Add(1)
					a.Add(-1)
					if err := m.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if both.Load() != rounds {
			t.Errorf("%d rounds of %d", both.Load(), rounds)
		}
	})
}

func TestL22AcquireAllCancelledHalfWay(t *testing.T) {
	oneStore(t, func(t *testing.T, b core.Backend) {
		one, two := newLocks(t, b), newLocks(t, b)
		keys := []string{"a", "b", "c", "d"}
		held := acquire(t, two, "c")
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, err := core.AcquireAll(ctx, one, keys, core.WithWait(core.Forever))
			gone <- err
		}()
		eventually(t, 5*time.Second, "half of them are taken", func() bool { return len(one.Leases()) == 2 })
		cancel()
		err := <-gone
		wantErr(t, err, context.Canceled) // whether the third is known to be held is a matter of luck
		if n := len(one.Leases()); n != 0 {
			t.Errorf("%d leases are left, and renewed", n)
		}
		for _, key := range []string{"a", "b", "d"} {
			release(t, acquire(t, two, key))
		}
		release(t, held)

		// Cancelled at any moment of the one trip.
		for i := range 60 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Duration(i*10)*time.Microsecond, cancel)
			if m, err := core.AcquireAll(ctx, one, keys); err == nil {
				_ = m.Release(ctx)
			} else if !errors.Is(err, context.Canceled) && !errors.Is(err, core.ErrNotAcquired) {
				t.Fatalf("cancelled: %v", err)
			}
			cancel()
		}
		m := acquireAll(t, two, keys, core.WithWait(5*time.Second))
		if err := m.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestL23AcquireAllReleaseTriesAll(t *testing.T) {
	s := whole{newScripted()}
	locks := newLocks(t, s)
	for _, l := range []core.Locker{locks, plain(locks)} {
		m := acquireAll(t, l, []string{"a", "b", "c", "d"})
		causes := map[string]error{"a": errors.New("no rights for a"), "c": errors.New("no rights for c")}
		s.set(func(_ context.Context, op *core.Op) bool {
			if cause := causes[op.Key]; cause != nil && op.Action == core.Release {
				op.Err = fmt.Errorf("%w: %w", core.ErrDenied, cause)
				return true
			}
			return false
		}, nil)
		wantErr(t, m.Release(t.Context()), core.ErrDenied, causes["a"], causes["c"])
		for key, held := range map[string]bool{"a": true, "b": false, "c": true, "d": false} {
			if s.held(t, key) != held {
				t.Errorf("%q is held: %v", key, !held)
			}
		}
		s.set(nil, nil)
		for key := range causes {
			must(t, newLocks(t, s).ForceRelease(t.Context(), key))
		}
	}
}

// L23: the server itself refuses for one of them.
func TestL23AcquireAllReleaseTriesAllOfAServer(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Client()
	locks := newLocks(t, core.Redis(as(t, s, "+@all", "~*", "&*")))
	m := acquireAll(t, locks, []string{"a", "b", "c"})
	must(t, admin.Do(t.Context(), "ACL", "SETUSER", "user", "resetkeys", "~a", "~c", "~latchkit~*").Err())
	err := m.Release(t.Context())
	wantErr(t, err, core.ErrDenied)
	var reply redis.Error
	if !errors.As(err, &reply) || !strings.Contains(reply.Error(), "NOPERM") {
		t.Errorf("the server's words are lost: %v", err)
	}
	for key, want := range map[string]int64{"a": 0, "b": 1, "c": 0} {
		if n := admin.Exists(t.Context(), key).Val(); n != want {
			t.Errorf("%q: %d in the store, want %d", key, n, want)
		}
	}
}

func TestAcquireAllLosesAllWithOne(t *testing.T) {
	oneStore(t, func(t *testing.T, b core.Backend) {
		one, two := newLocks(t, b, core.WithTTL(time.Second)), newLocks(t, b)
		for _, l := range []core.Locker{one, plain(one)} {
			for lost := range 3 {
				m := acquireAll(t, l, []string{"a", "b", "c"})
				if err := two.ForceRelease(t.Context(), m.Leases()[lost].Key()); err != nil {
					t.Fatal(err)
				}
				for i, lease := range m.Leases() {
					select {
					case <-lease.Context().Done():
					case <-time.After(5 * time.Second):
						t.Fatalf("lease %d goes on after the loss of %d", i, lost)
					}
				}
				wantErr(t, context.Cause(m.Context()), core.ErrLost)
				wantErr(t, m.Release(t.Context()), core.ErrLost)
				check := acquireAll(t, two, []string{"a", "b", "c"})
				if err := check.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func TestAcquireAllSharesItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := core.Local()
		one, two := newLocks(t, b), newLocks(t, b)
		for _, l := range []core.Locker{one, plain(one)} {
			held := acquireAll(t, two, []string{"a", "b"})
			time.AfterFunc(200*time.Millisecond, func() { _ = held.Leases()[0].Release(context.Background()) })
			began := time.Now()
			_, err := core.AcquireAll(t.Context(), l, []string{"a", "b"}, core.WithWait(300*time.Millisecond))
			wantErr(t, err, core.ErrNotAcquired)
			if took := time.Since(began); took != 300*time.Millisecond {
				t.Errorf("a wait of 300 ms took %v", took)
			}
			_ = held.Release(t.Context())
			if n := len(one.Leases()); n != 0 {
				t.Errorf("%d leases are left", n)
			}
		}
	})
}

// A Locker may say that a lock is not needed.
func TestAcquireAllOfNilLeases(t *testing.T) {
	locks := newLocks(t, core.Local())
	needed := "b"
	some := core.LockerFunc(func(ctx context.Context, key string, opts ...core.Option) (*core.Lease, error) {
		if key != needed {
			return nil, nil
		}
		return locks.Acquire(ctx, key, opts...)
	})
	for _, needed = range []string{"b", "none"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		m, err := core.AcquireAll(ctx, some, []string{"a", "b", "c"})
		if err != nil {
			t.Fatal(err)
		}
		if _, held := core.FromContext(m.Context()); held != (needed == "b") || m.Context().Err() != nil {
			t.Errorf("held %v, %v", held, m.Context().Err())
		}
		if err := m.Release(t.Context()); err != nil {
			t.Error(err)
		}
		wantErr(t, context.Cause(m.Context()), core.ErrReleased)
		if m, err = core.AcquireAll(ctx, some, []string{"a", "b", "c"}); err != nil {
			t.Fatal(err)
		}
		stopped := errors.New("stopped")
		cancel(stopped)
		wantErr(t, context.Cause(m.Context()), stopped)
		if err := m.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestL49AcquireAllInOneSlotIsOneTrip(t *testing.T) {
	rdb := redistest.Start(t).Client()
	locks := newLocks(t, core.Redis(rdb))
	calls := func() int64 { return commandCalls(t, rdb, "evalsha") + commandCalls(t, rdb, "eval") }
	m := acquireAll(t, locks, []string{"{user:1}:a", "{user:1}:b", "{user:1}:c"}) // loads the script
	if err := m.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := calls()
	m = acquireAll(t, locks, []string{"{user:1}:a", "{user:1}:b", "{user:1}:c"})
	if n := calls() - before; n != 1 {
		t.Errorf("%d script calls for three keys, want 1", n)
	}
	if err := m.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestL49AcquireAllOnACluster(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0)
	b := core.Redis(cluster.Client())
	one, two := newLocks(t, b), newLocks(t, b)
	together := b.(core.Gatherer).Together
	if !together([]string{"{user:1}:a", "{user:1}:b"}) || together([]string{"a", "b"}) {
		t.Error("keys of one slot go together, and others do not")
	}
	calls := func() (n int64) {
		for _, s := range cluster.Nodes() {
			rdb := s.Client()
			n += commandCalls(t, rdb, "evalsha") + commandCalls(t, rdb, "eval")
		}
		return n
	}
	for _, keys := range [][]string{{"{user:1}:warm", "{user:1}:warmer"}, {"{user:1}:a", "{user:1}:b"}, {"a", "b", "c"}} {
		before := calls()
		m := acquireAll(t, one, keys)
		if n := calls() - before; keys[0] == "{user:1}:a" && n != 1 {
			t.Errorf("%d script calls for two keys of one slot, want 1", n)
		}
		for _, key := range keys {
			if _, err := two.Acquire(t.Context(), key); !errors.Is(err, core.ErrNotAcquired) {
				t.Errorf("%q beside it: %v", key, err)
			}
		}
		if err := m.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := acquireAll(t, two, keys).Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
