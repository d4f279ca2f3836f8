package core_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/embedded"
)

// A service that has been moved, beside one that still says SETNX and GETSET itself.
func ExampleTimestamp() {
	addr, stop, err := embedded.Start()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()

	ctx := context.Background()
	locks, err := core.New(core.Timestamp(rdb))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close(ctx)

	lease, err := locks.Acquire(ctx, "order:42", core.WithTTL(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	taken, _ := rdb.SetNX(ctx, "order:42", time.Now().Add(time.Minute).UnixMilli(), 0).Result()
	fmt.Println("the old side gets what we hold:", taken)
	fmt.Println(lease.Release(ctx))

	taken, _ = rdb.SetNX(ctx, "order:42", time.Now().Add(time.Minute).UnixMilli(), 0).Result()
	fmt.Println("and what we have freed:", taken)
	_, err = locks.Acquire(ctx, "order:42")
	fmt.Println("we are kept out:", errors.Is(err, core.ErrNotAcquired))
	// Output:
	// the old side gets what we hold: false
	// <nil>
	// and what we have freed: true
	// we are kept out: true
}

// One service may be slow, but must not see a lock forgotten by a failover.
func ExampleWithReplicas() {
	addr, stop, err := embedded.Start()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: addr}) // a server without replicas
	defer rdb.Close()

	ctx := context.Background()
	locks, err := core.New(core.Redis(rdb))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close(ctx)
	_, err = locks.Acquire(ctx, "order:42", core.WithReplicas(1, 10*time.Millisecond))
	fmt.Println("unavailable:", errors.Is(err, core.ErrUnavailable))
	fmt.Println("nothing stays:", rdb.Exists(ctx, "order:42").Val() == 0)
	// Output:
	// unavailable: true
	// nothing stays: true
}
