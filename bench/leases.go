package main

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/latchkit/latchkit/core"
)

// leases: what 10,000 leases cost that are held and renewed.
func leases(s *stage) {
	const many, renewed, watched = 10_000, 15 * time.Second, 15 * time.Second
	addr, counting := s.redis()
	locks := engine(addr, core.WithTTL(renewed))
	warm := holdMany(locks, 1)
	goroutines, before := runtime.NumGoroutine(), memory()
	held := holdMany(locks, many)
	perLease := float64(memory()-before) / many

	// They were taken within a moment, so each is renewed three times meanwhile.
	told, cpu := ask(counting), ownCPU()
	time.Sleep(watched)
	client, server := ownCPU()-cpu, ask(counting).since(told)
	grown := runtime.NumGoroutine() - goroutines
	for _, l := range append(warm, held...) {
		check(context.Cause(l.Context()))
	}
	s.atMost("renewals of 10,000 leases, TTL 15 s: client CPU", 100*client.Seconds()/watched.Seconds(), "% of a core", 2)
	s.atMost("goroutines more than with one lease", float64(grown), "", 8)
	s.atMost("memory of a lease", perLease, "B", 1024)
	s.fact("renewals: %.0f extensions in %.0f scripts in %v; server CPU %.2f %% of a core", server.calls/3, server.scripts, watched,
		100*server.cpu.Seconds()/watched.Seconds())
}

// long: 100,000 leases held for five minutes while the server has other work.
func long(s *stage) {
	const many, ttl, watched = 100_000, 15 * time.Second, 5 * time.Minute
	addr, counting := s.redis()
	locks, busy := engine(addr, core.WithTTL(ttl)), engine(addr)
	held := holdMany(locks, many)
	ctx, cancel := context.WithCancel(context.Background())
	pairs := make(chan int)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			lease, err := busy.Acquire(context.Background(), "bench:busy")
			check(err)
			check(lease.Release(context.Background()))
		}
		pairs <- n
	}()
	cpu, told := ownCPU(), ask(counting)
	time.Sleep(watched)
	cancel()
	n, used, asked := <-pairs, ownCPU()-cpu, ask(counting).since(told)
	lost := 0
	for _, l := range held {
		if errors.Is(context.Cause(l.Context()), core.ErrLost) || l.Remaining() == 0 {
			lost++
		}
	}
	s.atMost("leases lost of 100,000 in 5 minutes", float64(lost), "", 0)
	s.fact("beside them %d pairs; client CPU %.1f %%, server CPU %.1f %% of a core", n,
		100*used.Seconds()/watched.Seconds(), 100*asked.cpu.Seconds()/watched.Seconds())
}

// holdMany takes n leases.
func holdMany(locks *core.Locks, n int) []*core.Lease {
	held := make([]*core.Lease, n)
	const parallel = 64
	errs := make(chan error, parallel)
	for p := range parallel {
		go func() {
			var err error
			for i := p; i < n && err == nil; i += parallel {
				held[i], err = locks.Acquire(context.Background(), keyOfMany(n, i))
			}
			errs <- err
		}()
	}
	for range parallel {
		check(<-errs)
	}
	return held
}

// memory is what the program uses: its heap and its stacks.
func memory() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what the first has found in pools goes with the second
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
