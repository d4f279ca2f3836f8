package core_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
)

// A RedLock holds while a majority of independent servers says so.
func ExampleRedLock() {
	var nodes []redis.UniversalClient
	for _, addr := range []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"} { // nobody listens there
		rdb := redis.NewClient(&redis.Options{Addr: addr, DialerRetries: 1})
		defer rdb.Close()
		nodes = append(nodes, rdb)
	}
	locks, err := core.New(core.RedLock(nodes, core.WithNodeTimeout(50*time.Millisecond)))
	if err != nil {
		fmt.Println(err) // nodes that are no RedLock; that they do not answer is no error yet
		return
	}
	defer locks.Close(context.Background())

	lease, err := locks.Acquire(context.Background(), "order:42")
	if errors.Is(err, core.ErrUnavailable) {
		fmt.Println("no majority answers")
		return
	}
	defer lease.Release(context.Background())
	// Output: no majority answers
}

// A process knows from the error when nodes that have lost their memory will grant locks again.
func ExampleQuarantineError() {
	err := fmt.Errorf("acquire: %w", &core.QuarantineError{RetryAfter: 40 * time.Second})

	var quarantine *core.QuarantineError
	if errors.As(err, &quarantine) {
		fmt.Println("again in", quarantine.RetryAfter)
	}
	fmt.Println(errors.Is(err, core.ErrUnavailable))
	// Output:
	// again in 40s
	// true
}

func ExampleWithMaxTTL() {
	_, err := core.New(core.RedLock(nil, core.WithMaxTTL(25*time.Hour)))
	fmt.Println(err)
	// Output: latchkit: invalid option: WithMaxTTL(25h0m0s): allowed is 10ms to 24h
}

func ExampleWithNodeTimeout() {
	_, err := core.New(core.RedLock(nil, core.WithNodeTimeout(time.Minute)))
	fmt.Println(err)
	// Output: latchkit: invalid option: WithNodeTimeout(1m0s): allowed is 1ms to 10s
}

func ExampleWithStrictRestart() {
	_, err := core.New(core.RedLock(nil, core.WithStrictRestart()))
	fmt.Println(err)
	// Output: latchkit: invalid option: RedLock of 0 nodes: allowed are 3 to 15 independent servers
}

func ExampleWithDurableNodes() {
	// Declares that appendfsync is "always" on every node.
	_, err := core.New(core.RedLock(nil, core.WithDurableNodes()))
	fmt.Println(errors.Is(err, core.ErrInvalidOption))
	// Output: true
}
