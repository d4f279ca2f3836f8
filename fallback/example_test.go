package fallback_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/fallback"
)

// A service that goes on locking within its process while Redis is away.
func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nobody listens there
	defer rdb.Close()
	locks, err := core.New(fallback.Wrap(core.Redis(rdb)))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	lease, err := locks.Acquire(ctx, "order:42") // tried three times, which opens the breaker
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("degraded:", lease.Degraded(), "fence:", lease.Fence())
	_, err = locks.Acquire(ctx, "order:42")
	fmt.Println(err != nil)
	fmt.Println(lease.Release(ctx))
	// Output:
	// degraded: true fence: 0
	// true
	// <nil>
}

// A breaker that opens at once, for a second; local leases that end within a minute; and a word to the operator.
func ExampleWrap() {
	backend := fallback.Wrap(core.Local(),
		fallback.WithBreaker(gobreaker.Settings{
			Timeout:     time.Second,
			ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 1 },
		}),
		fallback.WithMaxLocalHold(time.Minute),
		fallback.WithOnDegraded(func(d fallback.Degradation) { fmt.Println(d.What, d.Key) }),
	)
	locks, err := core.New(backend)
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	fmt.Println(backend.(*fallback.Backend).State())
	// Output: closed
}
