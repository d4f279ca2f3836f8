package core_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latchkit/latchkit/core"
)

// Two services over one store; the second is called by the first, and locks the same order.
func ExampleContextWithOwner() {
	store, ctx := core.Local(), context.Background()
	shop, _ := core.New(store)
	billing, _ := core.New(store)
	secret := []byte("known to both, 16 bytes or more")

	lease, _ := shop.Acquire(ctx, "order:42")
	_, err := billing.Acquire(ctx, "order:42")
	fmt.Println("without the owner it is busy:", errors.Is(err, core.ErrNotAcquired))

	token, err := lease.Export(secret, time.Minute) // travels with the call; grpclock does it by itself
	if err != nil {
		fmt.Println(err)
		return
	}
	called := core.ContextWithOwner(ctx, secret, token)
	part, err := billing.Acquire(called, "order:42")
	fmt.Println("with it, it takes part:", err == nil && part.Fence() == lease.Fence())
	part.Release(ctx)
	lease.Release(ctx)
	// Output:
	// without the owner it is busy: true
	// with it, it takes part: true
}

func ExampleExportOwners() {
	locks, secret := newLocal(), []byte("known to both, 16 bytes or more")
	err := core.Do(context.Background(), locks, "order:42", func(ctx context.Context) error {
		tokens := core.ExportOwners(ctx, secret, time.Minute) // one for each lock under which ctx runs
		fmt.Println(len(tokens))
		return nil
	})
	fmt.Println(err)
	// Output:
	// 1
	// <nil>
}

func ExampleOwnerTokens() {
	before := core.OwnerTokens()
	core.ContextWithOwner(context.Background(), []byte("known to both, 16 bytes or more"), "forged")
	fmt.Println(core.OwnerTokens().Forged - before.Forged)
	// Output: 1
}

// A Backend of one's own tells a store that fails from a caller that has left.
func ExampleCallerEnded() {
	ctx, cancel := context.WithCancel(context.Background())
	fmt.Println(core.CallerEnded(ctx))
	cancel()
	fmt.Println(core.CallerEnded(ctx))
	// Output:
	// <nil>
	// context canceled
}
