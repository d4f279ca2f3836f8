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

func Example() {
	addr, stop, err := embedded.Start() // a Redis inside this program
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()

	ctx := context.Background()
	locks, err := core.New(core.Redis(rdb), core.WithPrefix("shop:"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close(ctx)

	lease, err := locks.Acquire(ctx, "order:42")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release(ctx)

	_, err = locks.Acquire(ctx, "order:42")
	fmt.Println("a second one:", errors.Is(err, core.ErrNotAcquired))
	fmt.Println("in Redis:", rdb.Exists(ctx, "shop:order:42").Val())
	// Output:
	// a second one: true
	// in Redis: 1
}

func ExampleRedis() {
	addr, stop, err := embedded.Start() // a Redis inside this program
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: addr}) // or NewFailoverClient, NewClusterClient
	defer rdb.Close()
	locks, err := core.New(core.Redis(rdb))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer locks.Close(ctx)
	lease, err := locks.Acquire(ctx, "order:42")
	fmt.Println(lease.Backend(), err)
	fmt.Println(lease.Release(ctx), rdb.Exists(ctx, "order:42").Val())
	// Output:
	// redis <nil>
	// <nil> 0
}

func ExampleDo() {
	locks := newLocal()
	err := core.Do(context.Background(), locks, "order:42", func(ctx context.Context) error {
		lease, _ := core.FromContext(ctx)
		fmt.Println("under the lock of", lease.Key())
		return nil
	})
	fmt.Println(err)
	// Output:
	// under the lock of order:42
	// <nil>
}

func ExampleLocks_Acquire() {
	locks, ctx := newLocal(), context.Background()
	lease, _ := locks.Acquire(ctx, "sku:7")
	time.AfterFunc(50*time.Millisecond, func() { lease.Release(ctx) })

	_, err := locks.Acquire(ctx, "sku:7") // fails fast unless told to wait
	var busy *core.NotAcquiredError
	fmt.Println(errors.As(err, &busy), busy.Key, busy.RetryAfter > 0)

	next, err := locks.Acquire(ctx, "sku:7", core.WithWait(2*time.Second))
	fmt.Println(err, next.Fence() > lease.Fence())
	next.Release(ctx)
	// Output:
	// true sku:7 true
	// <nil> true
}

func ExampleLocks_Acquire_reentry() {
	locks, ctx := newLocal(), context.Background()
	outer, _ := locks.Acquire(ctx, "order:42")
	inner, err := locks.Acquire(outer.Context(), "order:42") // under the lease's context: counted, not blocked
	fmt.Println(err, inner.Fence() == outer.Fence())
	fmt.Println(inner.Release(ctx), outer.Release(ctx))
	// Output:
	// <nil> true
	// <nil> <nil>
}

func ExampleLocks_Close() {
	locks, ctx := newLocal(), context.Background()
	lease, _ := locks.Acquire(ctx, "order:42")
	context.AfterFunc(lease.Context(), func() { lease.Release(ctx) }) // the holder is told to finish
	fmt.Println(locks.Close(ctx))
	_, err := locks.Acquire(ctx, "order:42")
	fmt.Println(err)
	// Output:
	// <nil>
	// latchkit: closed
}

func ExampleLocks_Inspect() {
	locks, ctx := newLocal(), context.Background()
	lease, _ := locks.Acquire(ctx, "order:42", core.WithLabel("checkout-7"))
	info, _ := locks.Inspect(ctx, "order:42")
	fmt.Println(info.Held, info.Kind, info.Holders[0].Label, info.Holders[0].Fence == lease.Fence())
	// Output: true exclusive checkout-7 true
}

func ExampleLocks_ForceRelease() {
	locks, ctx := newLocal(), context.Background()
	stuck, _ := locks.Acquire(ctx, "order:42")
	fmt.Println(locks.ForceRelease(ctx, "order:42"))
	<-stuck.Context().Done()
	fmt.Println(errors.Is(context.Cause(stuck.Context()), core.ErrLost))
	// Output:
	// <nil>
	// true
}

func ExampleLocks_Waiting() {
	locks, ctx := newLocal(), context.Background()
	lease, _ := locks.Acquire(ctx, "order:42")
	served := make(chan error)
	go func() {
		next, _ := locks.Acquire(ctx, "order:42", core.WithWait(time.Minute))
		served <- next.Release(ctx)
	}()
	for len(locks.Waiting()) == 0 {
		time.Sleep(time.Millisecond)
	}
	fmt.Println(locks.Waiting()[0].Key, locks.Waiting()[0].Count)
	lease.Release(ctx)
	<-served
	// Output: order:42 1
}

func ExampleLocks_Losses() {
	locks, ctx := newLocal(), context.Background()
	locks.Acquire(ctx, "order:42")
	locks.ForceRelease(ctx, "order:42")
	for _, lost := range locks.Losses() {
		fmt.Println(lost.Key, lost.Reason, lost.Age() < time.Minute)
	}
	// Output: order:42 forced true
}

func ExampleLease_Fence() {
	locks, ctx := newLocal(), context.Background()
	var newest int64 // what a table remembers beside the row
	write := func(lease *core.Lease) bool {
		if lease.Fence() < newest {
			return false
		}
		newest = lease.Fence()
		return true
	}
	paused, _ := locks.Acquire(ctx, "order:42", core.WithTTL(20*time.Millisecond), core.WithoutRenewal())
	next, _ := locks.Acquire(ctx, "order:42", core.WithWait(time.Second)) // the first has expired
	fmt.Println(write(next), write(paused))
	// Output: true false
}

func ExampleLease_Extend() {
	locks, ctx := newLocal(), context.Background()
	lease, _ := locks.Acquire(ctx, "report", core.WithTTL(time.Second), core.WithoutRenewal())
	fmt.Println(lease.Extend(ctx, time.Minute), lease.Remaining() > 30*time.Second)
	// Output: <nil> true
}

func ExampleLease_ReleaseAfter() {
	locks, ctx := newLocal(), context.Background()
	lease, _ := locks.Acquire(ctx, "order:42")
	lease.ReleaseAfter(ctx, time.Minute) // done; repetitions are turned away for a minute
	_, err := locks.Acquire(ctx, "order:42")
	var busy *core.NotAcquiredError
	fmt.Println(errors.As(err, &busy), busy.Completed)
	// Output: true true
}

func ExampleSetDefault() {
	core.SetDefault(newLocal())
	defer core.SetDefault(nil)
	lease, err := core.Default().Acquire(context.Background(), "order:42")
	fmt.Println(lease.Key(), err)
	// Output: order:42 <nil>
}

func ExampleLockerFunc() {
	never := core.LockerFunc(func(context.Context, string, ...core.Option) (*core.Lease, error) {
		return nil, core.ErrUnavailable
	})
	err := core.Do(context.Background(), never, "k", func(context.Context) error { return nil })
	fmt.Println(err)
	// Output: latchkit: backend unavailable
}

func ExampleJoinKey() {
	fmt.Println(core.JoinKey("order", "42"))
	fmt.Println(core.JoinKey("a:b", "c") == core.JoinKey("a", "b:c"))
	// Output:
	// order:42
	// false
}

// newLocal returns an engine in memory, which an example need not close.
func newLocal() *core.Locks {
	locks, err := core.New(core.Local())
	if err != nil {
		panic(err)
	}
	return locks
}
