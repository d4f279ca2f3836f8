package main

import (
	"context"
	"runtime"
	"time"

	"github.com/latchkit/latchkit/core"
)

const (
	idleWaiters = 1000
	idleWatched = 10 * time.Second
)

// idle: 1,000 callers wait for keys that another process holds.
func idle(s *stage) {
	addr, counting := s.redis()
	holder := engine(addr)
	holdMany(holder, idleWaiters)
	m := s.member("idle", addr)
	m.awaitReady()
	before := ask(counting)
	m.start()
	var w waitersUsed
	if !m.finish(time.Now().Add(idleWatched+30*time.Second), &w) {
		s.Fatal("the process of waiters has not come back")
	}
	told := ask(counting).since(before)
	s.atMost("CPU of 1,000 waiters", 100*w.CPU.Seconds()/idleWatched.Seconds(), "% of a core", 3)
	s.fact("waiters: %.2f goroutines each; server CPU %.2f %% of a core, %.0f scripts and %.0f commands a second",
		float64(w.Goroutines)/idleWaiters, 100*told.cpu.Seconds()/idleWatched.Seconds(),
		told.scripts/idleWatched.Seconds(), told.calls/idleWatched.Seconds())
}

// waitersUsed is what a process of waiters has used.
type waitersUsed struct {
	CPU        time.Duration
	Goroutines int
}

// playIdle waits for what is held elsewhere.
func playIdle(args []string) any {
	locks := engine(args[0], core.WithWait(core.Forever))
	goroutines := runtime.NumGoroutine()
	for i := range idleWaiters {
		go func() { _, _ = locks.Acquire(context.Background(), keyOfMany(idleWaiters, i)) }()
	}
	time.Sleep(4 * time.Second) // they have subscribed and polled
	awaitWord()
	cpu := ownCPU()
	time.Sleep(idleWatched)
	return waitersUsed{ownCPU() - cpu, runtime.NumGoroutine() - goroutines}
}
