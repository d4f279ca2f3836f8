package main

import (
	"context"
	"slices"
	"time"

	"github.com/latchkit/latchkit/core"
)

// pass: how long a lock takes from one engine's release to the acquire of another that waits for it.
func pass(s *stage) {
	addr, counting := s.redis()
	ctx := context.Background()
	pair := [2]*core.Locks{engine(addr, core.WithWait(core.Forever)), engine(addr, core.WithWait(core.Forever))}
	lease, err := pair[0].Acquire(ctx, hotKey)
	check(err)
	var took, trips []time.Duration
	for i := range 60 * s.rounds {
		next := make(chan *core.Lease, 1)
		got := make(chan time.Time, 1)
		go func() {
			l, err := pair[(i+1)%2].Acquire(ctx, hotKey)
			got <- time.Now()
			check(err)
			next <- l
		}()
		awaitWaiter(ctx, pair[0])
		asked := time.Now()
		check(counting.Ping(ctx).Err())
		trips = append(trips, time.Since(asked))
		released := time.Now()
		check(lease.Release(ctx))
		took = append(took, (<-got).Sub(released))
		lease = <-next
	}
	took, trips = took[len(took)/10:], trips[len(trips)/10:] // scripts and connections are new at first
	slices.Sort(took)
	slices.Sort(trips)
	p50, trip := took[len(took)/2], trips[len(trips)/2]
	s.atMost("from release to the next engine's acquire, p50", float64(p50)/float64(trip), "round trips", 3)
	s.fact("hand-over between engines: p50 %v, p90 %v; a round trip (PING) %v", p50, took[len(took)*9/10], trip)
}

// awaitWaiter returns when somebody waits for the hot key, and has looked again since it subscribed.
func awaitWaiter(ctx context.Context, locks *core.Locks) {
	for {
		info, err := locks.Inspect(ctx, hotKey)
		check(err)
		if info.Waiters > 0 {
			time.Sleep(2 * time.Millisecond)
			return
		}
		time.Sleep(200 * time.Microsecond)
	}
}
