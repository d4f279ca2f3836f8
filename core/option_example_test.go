package core_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latchkit/latchkit/core"
)

func ExampleNew() {
	locks, err := core.New(core.Local(), core.WithTTL(10*time.Second)) // the default of every Acquire
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer locks.Close(ctx)
	lease, err := locks.Acquire(ctx, "order:42")
	fmt.Println(err, lease.Remaining() <= 10*time.Second)
	lease.Release(ctx)

	_, err = core.New(core.Local(), core.WithTTL(48*time.Hour))
	fmt.Println(err)
	// Output:
	// <nil> true
	// latchkit: invalid option: WithTTL(48h0m0s): allowed is 10ms to 24h
}

func ExampleLocal() {
	locks, err := core.New(core.Local()) // keeps out goroutines of this process, and nobody else
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer locks.Close(ctx)
	lease, err := locks.Acquire(ctx, "order:42")
	fmt.Println(lease.Key(), lease.Backend(), err)
	lease.Release(ctx)
	// Output: order:42 local <nil>
}

func ExampleWithTTL() {
	locks, ctx := newLocal(), context.Background()
	lease, _ := locks.Acquire(ctx, "order:42", core.WithTTL(5*time.Second))
	defer lease.Release(ctx)
	fmt.Println("a crash of this process blocks the key for less than 5 s:", lease.Remaining() < 5*time.Second)
	// Output: a crash of this process blocks the key for less than 5 s: true
}

func ExampleWithWait() {
	locks, ctx := newLocal(), context.Background()
	lease, _ := locks.Acquire(ctx, "sku:7")
	defer lease.Release(ctx)
	_, err := locks.Acquire(ctx, "sku:7", core.WithWait(20*time.Millisecond))
	fmt.Println("waited in vain:", errors.Is(err, core.ErrNotAcquired))

	impatient, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err = locks.Acquire(impatient, "sku:7", core.WithWait(core.Forever))
	fmt.Println("both are true:", errors.Is(err, core.ErrNotAcquired), errors.Is(err, context.DeadlineExceeded))
	// Output:
	// waited in vain: true
	// both are true: true true
}

func ExampleWithoutRenewal() {
	locks, ctx := newLocal(), context.Background()
	lease, _ := locks.Acquire(ctx, "newsletter", core.WithTTL(20*time.Millisecond), core.WithoutRenewal())
	<-lease.Context().Done() // it has ended with its TTL
	fmt.Println(errors.Is(context.Cause(lease.Context()), core.ErrLost))
	// Output: true
}

func ExampleWithPrefix() {
	backend := core.Local() // one store for two services
	shop, _ := core.New(backend, core.WithPrefix("shop:"))
	billing, _ := core.New(backend, core.WithPrefix("billing:"))
	ctx := context.Background()
	a, _ := shop.Acquire(ctx, "order:42")
	b, err := billing.Acquire(ctx, "order:42")
	fmt.Println("two locks:", err == nil)
	a.Release(ctx)
	b.Release(ctx)
	// Output: two locks: true
}

func ExampleWithLabel() {
	locks, ctx := newLocal(), context.Background()
	lease, _ := locks.Acquire(ctx, "order:42", core.WithLabel("checkout in rack 7"))
	defer lease.Release(ctx)
	info, _ := locks.Inspect(ctx, "order:42")
	fmt.Println(info.Holders[0].Label)
	// Output: checkout in rack 7
}

func ExampleWithTracer() {
	locks, err := core.New(core.Local(), core.WithTracer(nil)) // otellock.New() for spans and metrics
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	fmt.Println(core.Do(ctx, locks, "order:42", func(context.Context) error { return nil }))
	// Output: <nil>
}

func ExampleFromContext() {
	save := func(ctx context.Context) { // deep below, where nobody has passed the lease
		lease, ok := core.FromContext(ctx)
		fmt.Println(ok, lease.Key(), lease.Fence() > 0)
	}
	locks, ctx := newLocal(), context.Background()
	lease, _ := locks.Acquire(ctx, "order:42")
	defer lease.Release(ctx)
	save(lease.Context())
	// Output: true order:42 true
}

func ExampleDefault() {
	fmt.Println(core.Default()) // nothing was set
	core.SetDefault(newLocal())
	defer core.SetDefault(nil)
	lease, err := core.Default().Acquire(context.Background(), "order:42")
	fmt.Println(lease.Key(), err)
	// Output:
	// <nil>
	// order:42 <nil>
}
