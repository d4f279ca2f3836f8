package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/fallback"
)

// While Redis is away everybody may pass: for work that may run twice rather than not at all.
func ExampleWithPolicy() {
	locks, stop := withoutRedis(fallback.WithPolicy(fallback.Allow))
	defer stop()
	ctx := context.Background()
	a, err := locks.Acquire(ctx, "order:42")
	fmt.Println(err, a.Degraded())
	b, err := locks.Acquire(ctx, "order:42")
	fmt.Println(err, b.Degraded())
	a.Release(ctx)
	b.Release(ctx)
	// Output:
	// <nil> true
	// <nil> true
}

// A breaker that opens at the first failure, and asks again after a second.
func ExampleWithBreaker() {
	locks, stop := withoutRedis(fallback.WithBreaker(gobreaker.Settings{
		Timeout:       time.Second,
		ReadyToTrip:   func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 1 },
		OnStateChange: func(name string, from, to gobreaker.State) { /* tell somebody */ },
	}))
	defer stop()
	ctx := context.Background()
	lease, err := locks.Acquire(ctx, "order:42")
	fmt.Println(err, lease.Degraded())
	lease.Release(ctx)
	// Output: <nil> true
}

func ExampleWithMaxLocalHold() {
	locks, stop := withoutRedis(fallback.WithMaxLocalHold(time.Minute)) // what runs without Redis ends within a minute
	defer stop()
	ctx := context.Background()
	lease, err := locks.Acquire(ctx, "order:42")
	fmt.Println(err, lease.Degraded())
	lease.Release(ctx)
	// Output: <nil> true
}

// Leases that other processes got before the outage run out first.
func ExampleWithDrain() {
	locks, stop := withoutRedis(fallback.WithDrain(core.DefaultTTL))
	defer stop()
	_, err := locks.Acquire(context.Background(), "order:42")
	fmt.Println(errors.Is(err, core.ErrUnavailable))
	// Output: true
}

func ExampleWithoutCarryOver() {
	locks, stop := withoutRedis(fallback.WithoutCarryOver()) // a lease that Redis granted ends if Redis cannot renew it
	defer stop()
	ctx := context.Background()
	lease, err := locks.Acquire(ctx, "order:42")
	fmt.Println(err, lease.Degraded()) // one that this process granted lives on
	lease.Release(ctx)
	// Output: <nil> true
}

func ExampleWithOnDegraded() {
	told := make(chan fallback.Degradation, 1)
	locks, stop := withoutRedis(fallback.WithOnDegraded(func(d fallback.Degradation) { told <- d }))
	defer stop()
	ctx := context.Background()
	lease, err := locks.Acquire(ctx, "order:42")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println((<-told).Key)
	lease.Release(ctx)
	// Output: order:42
}

func ExampleWithLogger() {
	brief := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	locks, stop := withoutRedis(fallback.WithLogger(brief))
	defer stop()
	ctx := context.Background()
	lease, err := locks.Acquire(ctx, "order:42")
	fmt.Println(err, lease.Degraded())
	lease.Release(ctx)
	// Output: <nil> true
}

// withoutRedis returns an engine whose Redis is away.
func withoutRedis(opts ...fallback.Option) (locks *core.Locks, stop func()) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1}) // nobody listens there
	locks, err := core.New(fallback.Wrap(core.Redis(rdb), opts...))
	if err != nil {
		panic(err)
	}
	return locks, func() {
		_ = locks.Close(context.Background())
		_ = rdb.Close()
	}
}
