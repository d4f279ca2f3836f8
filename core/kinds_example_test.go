package core_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latchkit/latchkit/core"
)

func ExampleWithShared() {
	locks, ctx := newLocal(), context.Background()
	one, _ := locks.Acquire(ctx, "catalogue", core.WithShared())
	two, _ := locks.Acquire(ctx, "catalogue", core.WithShared()) // readers do not mind one another
	_, err := locks.Acquire(ctx, "catalogue")                    // a writer does
	fmt.Println(errors.Is(err, core.ErrNotAcquired))

	one.Release(ctx)
	two.Release(ctx)
	writer, err := locks.Acquire(ctx, "catalogue")
	fmt.Println(writer.Key(), err)
	// Output:
	// true
	// catalogue <nil>
}

// At most three exports run at a time, on all machines.
func ExampleWithLimit() {
	locks, ctx := newLocal(), context.Background()
	for range 4 {
		_, err := locks.Acquire(ctx, "exports", core.WithLimit(3))
		fmt.Println(err == nil)
	}
	// Output:
	// true
	// true
	// true
	// false
}

func ExampleWithFair() {
	backend := core.Local()
	one, _ := core.New(backend) // two processes
	two, _ := core.New(backend)
	ctx := context.Background()
	holder, _ := one.Acquire(ctx, "till", core.WithFair())
	served := make(chan string)
	queue := func(l core.Locker, name string) {
		lease, _ := l.Acquire(ctx, "till", core.WithFair(), core.WithWait(core.Forever))
		served <- name
		lease.Release(ctx)
	}
	go queue(two, "came first")
	for info := (core.Info{}); info.Waiters == 0; { // until it stands in line
		info, _ = one.Inspect(ctx, "till")
	}
	go queue(one, "came second")
	holder.Release(ctx)
	fmt.Println(<-served)
	fmt.Println(<-served)
	// Output:
	// came first
	// came second
}

func ExampleWithMaxHold() {
	locks, ctx := newLocal(), context.Background()
	lease, _ := locks.Acquire(ctx, "report", core.WithMaxHold(20*time.Millisecond))
	<-lease.Context().Done() // work under it is told to stop; the key is held until Release
	fmt.Println(errors.Is(context.Cause(lease.Context()), core.ErrMaxHold), lease.Release(ctx))
	// Output: true <nil>
}

// A transfer works on two accounts, and cannot deadlock with one the other way.
func ExampleAcquireAll() {
	locks, ctx := newLocal(), context.Background()
	both, err := core.AcquireAll(ctx, locks, []string{"account:7", "account:3"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer both.Release(ctx)
	for _, lease := range both.Leases() {
		fmt.Println(lease.Key())
	}
	_, err = locks.Acquire(ctx, "account:7")
	fmt.Println(errors.Is(err, core.ErrNotAcquired))
	// Output:
	// account:3
	// account:7
	// true
}

// Losing one key loses all: work under Context, which ends with the first.
func ExampleMultiLease_Context() {
	locks, ctx := newLocal(), context.Background()
	both, _ := core.AcquireAll(ctx, locks, []string{"account:3", "account:7"})
	locks.ForceRelease(ctx, "account:7")
	<-both.Context().Done()
	fmt.Println(errors.Is(context.Cause(both.Context()), core.ErrLost))
	// Output: true
}

// Every process of a service calls Lead at its start; one of them runs the jobs. examples/scheduler does it with three
// processes, of which it kills one.
func ExampleLead() {
	locks := newLocal()
	ctx, stop := context.WithCancel(context.Background())
	err := core.Lead(ctx, locks, "jobs", func(ctx context.Context) error {
		fmt.Println("leads")
		stop() // the process is told to end
		<-ctx.Done()
		return ctx.Err()
	})
	fmt.Println(errors.Is(err, context.Canceled))
	// Output:
	// leads
	// true
}

func ExampleLocks_Leases() {
	locks, ctx := newLocal(), context.Background()
	locks.Acquire(ctx, "order:42", core.WithLabel("checkout"))
	locks.Acquire(ctx, "catalogue", core.WithShared())
	for _, held := range locks.Leases() {
		fmt.Println(held.Key, held.Kind, held.Renewed, held.Age() < time.Minute)
	}
	// Output:
	// order:42 exclusive true true
	// catalogue shared true true
}

// A service that holds an order calls another, which locks it as well. grpclock carries the token in the call's metadata.
func ExampleContextWithOwner() {
	backend, ctx := core.Local(), context.Background()
	shop, _ := core.New(backend)
	stock, _ := core.New(backend)          // another process
	secret := []byte("known to both ends") // 16 bytes or more
	order, _ := shop.Acquire(ctx, "order:42")
	token, err := order.Export(secret, time.Minute)
	if err != nil {
		fmt.Println(err)
		return
	}

	called := core.ContextWithOwner(ctx, secret, token)
	part, err := stock.Acquire(called, "order:42") // takes part in the hold, instead of waiting for it
	fmt.Println(err, part.Fence() == order.Fence())

	order.Release(ctx)
	_, err = shop.Acquire(ctx, "order:42")
	fmt.Println("kept by the other:", errors.Is(err, core.ErrNotAcquired))
	fmt.Println(part.Release(ctx))
	// Output:
	// <nil> true
	// kept by the other: true
	// <nil>
}

func ExampleExportOwners() {
	locks, secret := newLocal(), []byte("known to both ends")
	err := core.Do(context.Background(), locks, "order:42", func(ctx context.Context) error {
		tokens := core.ExportOwners(ctx, secret, time.Minute) // for all locks under which the call is made
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
	core.ContextWithOwner(context.Background(), []byte("known to both ends"), "not a token of ours")
	fmt.Println(core.OwnerTokens().Forged - before.Forged)
	// Output: 1
}
