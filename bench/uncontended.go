package main

import (
	"context"
	"time"
)

const cancelName = "latchkit-cancellable"

// one: a single goroutine, a free key each time.
func one(s *stage) {
	addr, counting := s.redis()
	keys := keysOf(1024)
	names := []string{rawName, oursName, cancelName, redislockName, redsyncName, rueidisName}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.contest(names, func(name string) locker {
		if name == cancelName {
			return cancellable{peers[oursName].open(place{addr: addr, goroutines: 1}), ctx}
		}
		return peers[name].open(place{addr: addr, goroutines: 1})
	}, load{goroutines: 1, length: 250 * time.Millisecond, servers: servers(counting),
		key: func(_, i int) string { return keys[i%len(keys)] }})
	r := &s.report
	s.atMost("latchkit / raw", r.ratio(oursName, rawName, turn.perPair), "×", 1.25)
	s.atMost("latchkit / rueidislock", r.ratio(oursName, rueidisName, turn.perPair), "×", 1)
	s.atMost("allocations above raw", r.typical(oursName, turn.allocs)-r.typical(rawName, turn.allocs), "", 8)
	s.atMost("the same, cancellable", r.typical(cancelName, turn.allocs)-r.typical(rawName, turn.allocs), "", 8)
}

// many: 128 goroutines, each with a key of its own.
func many(s *stage) {
	addr, counting := s.redis()
	const goroutines = 128
	keys := keysOf(goroutines)
	names := []string{autoName, oursName, rawName, redislockName, redsyncName, rueidisName}
	s.contest(names, func(name string) locker {
		return peers[name].open(place{addr: addr, goroutines: goroutines})
	}, load{goroutines: goroutines, length: 400 * time.Millisecond, servers: servers(counting),
		key: func(g, _ int) string { return keys[g] }})
	s.atLeast("auto-pipelined floor / latchkit", s.report.ratio(autoName, oursName, turn.perPair), "×", 0.9)
	s.atLeast("redislock / latchkit", s.report.ratio(redislockName, oursName, turn.perPair), "×", 3)
	s.atLeast("redsync / latchkit", s.report.ratio(redsyncName, oursName, turn.perPair), "×", 4)
	s.atLeast("rueidislock / latchkit", s.report.ratio(rueidisName, oursName, turn.perPair), "×", 1.8)
}
