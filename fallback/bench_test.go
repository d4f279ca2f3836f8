package fallback

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"github.com/latchkit/latchkit/core"
)

// nobody is a client of a port that nobody listens on.
func nobody(tb testing.TB) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	tb.Cleanup(func() { rdb.Close() })
	return rdb
}

// opensAtOnce is a breaker that opens with the first failure, and stays open.
func opensAtOnce() Option {
	return WithBreaker(gobreaker.Settings{Timeout: time.Hour, ReadyToTrip: func(gobreaker.Counts) bool { return true }})
}

// openLocks is an engine whose breaker is open and stays so.
func openLocks(tb testing.TB) *core.Locks {
	locks, err := core.New(Wrap(core.Redis(nobody(tb)), opensAtOnce()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { locks.Close(context.Background()) })
	lease, err := locks.Acquire(context.Background(), "k")
	if err != nil || !lease.Degraded() {
		tb.Fatalf("degraded %v: %v", lease.Degraded(), err)
	}
	lease.Release(context.Background())
	return locks
}

// BenchmarkAcquireWhileOpen is an acquire and a release while Redis is away; p99 is that of the acquire.
func BenchmarkAcquireWhileOpen(b *testing.B) {
	locks := openLocks(b)
	ctx := context.Background()
	times := make([]time.Duration, 0, 1<<20)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		began := time.Now()
		lease, err := locks.Acquire(ctx, "order")
		took := time.Since(began)
		if err != nil {
			b.Fatal(err)
		}
		if len(times) < cap(times) {
			times = append(times, took)
		}
		lease.Release(ctx)
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds()), "p99-ns")
}

// BenchmarkAcquireWhileOpenParallel has all cores acquire keys of their own.
func BenchmarkAcquireWhileOpenParallel(b *testing.B) {
	locks := openLocks(b)
	b.RunParallel(func(pb *testing.PB) {
		key := fmt.Sprint(time.Now().UnixNano())
		for pb.Next() {
			lease, err := locks.Acquire(context.Background(), key)
			if err != nil {
				b.Fatal(err)
			}
			lease.Release(context.Background())
		}
	})
}

// BenchmarkClosed is what the fallback adds to a trip.
func BenchmarkClosed(b *testing.B) {
	for name, backend := range map[string]core.Backend{"bare": core.Local(), "wrapped": Wrap(core.Local())} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			owner := newOwner()
			ctx := context.Background()
			for b.Loop() {
				op := &core.Op{Action: core.Try, Hold: exclusive("k"), Owner: owner, Fences: 1}
				backend.Do(ctx, []*core.Op{op})
				backend.Do(ctx, []*core.Op{again(core.Release, op)})
			}
		})
	}
}

// An acquire while Redis is away takes far less than a trip would.
func TestAcquireWhileOpenIsQuick(t *testing.T) {
	locks := openLocks(t)
	times := make([]time.Duration, 2000)
	for i := range times {
		began := time.Now()
		lease, err := locks.Acquire(t.Context(), "order")
		times[i] = time.Since(began)
		if err != nil {
			t.Fatal(err)
		}
		lease.Release(t.Context())
	}
	slices.Sort(times)
	if median := times[len(times)/2]; median > 50*time.Microsecond {
		t.Errorf("the median is %v", median)
	}
}
