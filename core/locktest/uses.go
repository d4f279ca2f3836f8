package locktest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/latchkit/latchkit/core"
)

// usesSuite are the tests of what can be done with holds of every kind.
var usesSuite = []suiteTest{
	{"WhatCannotBeCarriedIsRefusedWithAReason", saysWhy},
	{"MaxHoldEndsTheWorkAndNotTheHold", maxHold},
	{"CompletedByEveryKind", completedByKinds},
	{"InspectTellsOfEveryKind", inspected},
	{"ForceReleaseOfEveryKind", forcedKinds},
	{"AllKeysOrNone", allOrNone},
	{"LosingOneKeyLosesAll", losesAll},
	{"OneLeadsAndAnotherTakesOver", leads},
	{"OwnerTakesPartInAnotherProcess", ownerTakesPart},
}

// kinds are the options of each kind of hold.
var kinds = map[string][]core.Option{"exclusive": nil, "shared": {core.WithShared()}, "limited": {core.WithLimit(2)},
	"fair": {core.WithFair()}}

// carried are the kinds that the backend can carry.
func (b *bench) carried() map[string][]core.Option {
	b.Helper()
	able := maps.Clone(kinds)
	locks := b.engine()
	for name, opts := range kinds {
		lease, err := locks.Acquire(b.Context(), "needs", opts...)
		switch {
		case err == nil:
			b.release(lease)
		case errors.Is(err, core.ErrInvalidOption):
			delete(able, name)
		default:
			b.Fatalf("%s: %v", name, err)
		}
	}
	return able
}

// inspects skips the test when the backend cannot inspect. Call it before anything is held.
func (b *bench) inspects() {
	b.Helper()
	if !b.canInspect() {
		b.Skip("this backend says that it cannot inspect, or does not tell of waiters")
	}
}

// canInspect tells whether the backend can inspect and knows who waits, as one with a store does. That it cannot is for
// the backend to say: a store that does not answer is asked again, and one that never answers fails the test.
func (b *bench) canInspect() (can bool) {
	b.Helper()
	locks := b.engine()
	b.eventually("the backend inspects a free key", func() bool {
		info, err := locks.Inspect(b.Context(), "needs")
		if err != nil && !errors.Is(err, core.ErrInvalidOption) && !errors.Is(err, core.ErrUnavailable) {
			b.Fatal(err)
		}
		can = err == nil && info.Waiters >= 0
		return !errors.Is(err, core.ErrUnavailable)
	})
	return can
}

func (b *bench) free(l core.Locker, key string) bool {
	b.Helper()
	lease, err := l.Acquire(b.Context(), key)
	if err == nil {
		b.release(lease)
	} else if !errors.Is(err, core.ErrNotAcquired) {
		b.Fatal(err)
	}
	return err == nil
}

func saysWhy(b *bench) {
	able := b.carried()
	if _, ok := able["exclusive"]; !ok {
		b.Error("no exclusive holds")
	}
	for name, opts := range kinds {
		if _, ok := able[name]; ok {
			continue
		}
		_, err := b.engine().Acquire(b.Context(), "k", opts...)
		if reason, ok := strings.CutPrefix(err.Error(), core.ErrInvalidOption.Error()+": "); !ok || len(reason) < 20 {
			b.Errorf("%s: %q is no reason", name, err)
		}
	}
}

func maxHold(b *bench) {
	one, two := b.engine(), b.engine()
	lease := b.acquire(one, "k", core.WithMaxHold(100*time.Millisecond))
	b.ends(lease, core.ErrMaxHold)
	b.refused(two, "k")
	b.release(lease)
	b.release(b.acquire(two, "k"))
	for name, opts := range b.carried() { // one that is never released ends with its TTL
		lease := b.acquire(one, name, append(opts, core.WithMaxHold(10*time.Millisecond), core.WithTTL(600*time.Millisecond))...)
		b.release(b.acquire(two, name, core.WithWait(10*time.Second)))
		b.want(lease.Release(b.Context()), core.ErrLost)
	}
}

func completedByKinds(b *bench) {
	one, two := b.engine(), b.engine()
	able := b.carried()
	inspects := b.canInspect()
	for name, opts := range able {
		const cooldown = 2 * time.Second
		lease := b.acquire(one, name, append(opts, core.WithLabel("done"))...)
		if err := lease.ReleaseAfter(b.Context(), cooldown); err != nil {
			b.Fatal(err)
		}
		for other, theirs := range able {
			busy := b.refused(two, name, append(theirs, core.WithWait(time.Minute))...)
			if !busy.Completed || busy.RetryAfter <= 0 || busy.RetryAfter > cooldown {
				b.Errorf("%s after %s: %+v", other, name, busy)
			}
		}
		if !inspects {
			continue
		}
		info, err := two.Inspect(b.Context(), name)
		if err != nil || info.Held || !info.Completed || len(info.Holders) != 1 || info.Holders[0].Label != "done" ||
			info.Holders[0].Remaining <= 0 || info.Holders[0].Remaining > cooldown {
			b.Errorf("inspect after %s: %+v, %v", name, info, err)
		}
	}
	for name := range able {
		b.eventually("the cooldown ends", func() bool { return b.free(two, name) })
	}
}

func inspected(b *bench) {
	b.inspects()
	const ttl = 20 * time.Second
	one, two := b.engine(core.WithTTL(ttl)), b.engine()
	before := time.Now()
	for name, opts := range b.carried() {
		want := map[string]core.Kind{"shared": core.Shared, "limited": core.Limited}[name]
		labels := []string{"first"}
		if want != core.Exclusive {
			labels = append(labels, "sec:ond, with ; and all")
		}
		var leases []*core.Lease
		fences := map[string]int64{}
		for _, label := range labels {
			lease := b.acquire(one, name, append(opts, core.WithLabel(label))...)
			leases = append(leases, lease)
			fences[label] = lease.Fence()
		}
		for _, asks := range []*core.Locks{one, two} {
			info, err := asks.Inspect(b.Context(), name)
			if err != nil || info.Key != name || info.Backend != b.backend.Name() || !info.Held || info.Completed || info.Foreign ||
				info.Kind != want || len(info.Holders) != len(labels) || info.Waiters > 0 {
				b.Fatalf("inspect of %s: %+v, %v", name, info, err)
			}
			for _, h := range info.Holders {
				if !slices.Contains(labels, h.Label) || h.Fence != fences[h.Label] || h.Remaining <= 0 || h.Remaining > ttl ||
					h.Since.Before(before.Add(-time.Minute)) || h.Since.After(time.Now().Add(time.Minute)) || h.Count != 1 ||
					h.Here != (asks == one) {
					b.Errorf("a holder of %s is %+v", name, h)
				}
			}
		}
		for _, lease := range leases {
			b.release(lease)
		}
		if info, err := two.Inspect(b.Context(), name); err != nil || info.Held || len(info.Holders) > 0 {
			b.Errorf("inspect of %s, which is free: %+v, %v", name, info, err)
		}
	}
}

func forcedKinds(b *bench) {
	b.inspects()
	one, two := b.engine(core.WithTTL(time.Second)), b.engine()
	for name, opts := range b.carried() {
		lease := b.acquire(one, "k", opts...)
		got := b.later(two, core.WithWait(20*time.Second))
		b.waiters(two, 1)
		if err := two.ForceRelease(b.Context(), "k"); err != nil {
			b.Fatal(err)
		}
		next := b.within(5*time.Second, got)
		b.ends(lease, core.ErrLost)
		b.want(lease.Release(b.Context()), core.ErrLost)
		if next.Fence() != 0 && next.Fence() <= lease.Fence() {
			b.Errorf("%s: fence %d after %d", name, next.Fence(), lease.Fence())
		}
		b.release(next)
	}
}

func allOrNone(b *bench) {
	one, two := b.engine(), b.engine()
	held := b.acquire(two, "b")
	_, err := core.AcquireAll(b.Context(), one, []string{"c", "b", "a"})
	var busy *core.NotAcquiredError
	if !errors.As(err, &busy) || busy.Key != "b" {
		b.Fatalf("with one of them held: %v", err)
	}
	for _, key := range []string{"a", "c"} {
		b.eventually(key+" is free", func() bool { return b.free(two, key) })
	}
	b.release(held)
	all, err := core.AcquireAll(b.Context(), one, []string{"c", "b", "a", "b"}, core.WithWait(5*time.Second))
	if err != nil || len(all.Leases()) != 3 {
		b.Fatalf("all: %d leases, %v", len(all.Leases()), err)
	}
	for _, lease := range all.Leases() {
		b.refused(two, lease.Key())
	}
	if err := all.Release(b.Context()); err != nil {
		b.Error(err)
	}
	b.want(context.Cause(all.Context()), core.ErrReleased)
	for _, key := range []string{"a", "b", "c"} {
		b.release(b.acquire(two, key))
	}
}

func losesAll(b *bench) {
	b.inspects()
	one, two := b.engine(core.WithTTL(time.Second)), b.engine()
	all, err := core.AcquireAll(b.Context(), one, []string{"a", "b", "c"})
	if err != nil {
		b.Fatal(err)
	}
	if err := two.ForceRelease(b.Context(), "b"); err != nil {
		b.Fatal(err)
	}
	for _, lease := range all.Leases() {
		select {
		case <-lease.Context().Done():
		case <-time.After(10 * time.Second):
			b.Fatalf("%q goes on", lease.Key())
		}
	}
	b.want(context.Cause(all.Context()), core.ErrLost)
	b.want(all.Release(b.Context()), core.ErrLost)
}

func leads(b *bench) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var leader atomic.Pointer[core.Lease]
	led, done := make(chan *core.Lease), make(chan error, 2)
	for range 2 {
		locks := b.engine(core.WithTTL(400 * time.Millisecond))
		go func() {
			done <- core.Lead(ctx, locks, "job", func(ctx context.Context) error {
				lease, _ := core.FromContext(ctx)
				if before := leader.Swap(lease); before.Remaining() > 0 {
					b.Error("two lead at once")
				}
				select {
				case led <- lease:
				case <-ctx.Done():
				}
				<-ctx.Done()
				return ctx.Err()
			}, core.WithoutRenewal()) // as if each died at once
		}()
	}
	var last *core.Lease
	for range 3 {
		select {
		case lease := <-led:
			if last != nil && lease.Fence() != 0 && lease.Fence() <= last.Fence() {
				b.Errorf("fence %d after %d", lease.Fence(), last.Fence())
			}
			last = lease
		case <-time.After(20 * time.Second):
			b.Fatal("nobody leads")
		}
	}
	cancel()
	for range 2 {
		b.want(<-done, context.Canceled)
	}
}

func ownerTakesPart(b *bench) {
	secret := []byte("a secret that both ends know")
	caller, callee, stranger := b.engine(), b.engine(), b.engine()
	outer := b.acquire(caller, "k")
	if outer.Degraded() {
		b.release(outer)
		b.Skip("a hold without a store is this process's alone")
	}
	token, err := outer.Export(secret, time.Minute)
	if errors.Is(err, core.ErrInvalidOption) {
		b.release(outer)
		b.Skipf("this backend says: %v", err)
	}
	if err != nil {
		b.Fatal(err)
	}
	ctx := core.ContextWithOwner(b.Context(), secret, token)
	inner, err := callee.Acquire(ctx, "k")
	if err != nil || inner.Fence() != outer.Fence() {
		b.Fatalf("taking part: %v", err)
	}
	b.release(outer)
	b.refused(stranger, "k")
	b.release(inner)
	_, err = callee.Acquire(ctx, "k")
	b.want(err, core.ErrLost)
	b.release(b.acquire(stranger, "k"))
}
