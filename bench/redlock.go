package main

import (
	"context"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// redlock: a majority of five servers, by one goroutine and by many at once, and then with one server stopped.
func redlock(s *stage) {
	nodes := redistest.StartN(s, 5)
	var counting []*redis.Client
	for _, n := range nodes {
		counting = append(counting, n.NewClient(func(o *redis.Options) { o.PoolSize = 1 }))
	}
	open := func(name string) locker {
		if strings.HasPrefix(name, redsyncName) {
			return redsyncOver(nodes)
		}
		return oursOver(nodes)
	}
	keys := keysOf(1024)
	l := load{goroutines: 1, length: 300 * time.Millisecond, timed: true, key: func(_, i int) string { return keys[i%len(keys)] }}
	healthy := l
	healthy.servers = counting
	s.contest([]string{oursName, redsyncName}, open, healthy)
	s.atLeast("redsync / latchkit", s.report.ratio(redsyncName, oursName, turn.perPair), "×", 2)

	const ourMany, theirMany = oursName + ", 64 at once", redsyncName + ", 64 at once"
	many := healthy
	many.goroutines = redLockMany
	many.key = func(g, _ int) string { return keys[g] }
	s.contest([]string{ourMany, theirMany}, open, many)
	s.atLeast("redsync / latchkit, 64 goroutines", s.report.ratio(theirMany, ourMany, turn.perPair), "×", 2)

	at := open(oursName)
	defer at.close()
	keys = keysOf(1000) // its own: what another contender has left on two nodes keeps everybody out when a third is stopped
	l.work(oursName, at)
	const alone, stopped = "latchkit, alone", "latchkit, one stopped"
	for _, name := range []string{alone, stopped} {
		if name == stopped {
			nodes[2].Pause()
		}
		for range s.rounds {
			s.report.Turns = append(s.report.Turns, l.work(name, at))
		}
	}
	s.atMost("one node stopped / healthy, medians of a pair", s.report.ratio(stopped, alone, turn.pairP50), "×", 1.5)
	theirs := open(redsyncName)
	defer theirs.close()
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	held, err := theirs.lock(ctx, "bench:stopped")
	took := time.Since(began)
	if err == nil {
		_ = theirs.unlock(ctx, "bench:stopped", held)
	}
	s.fact("redsync with one node stopped: a lock took %v, its release %v (error: %v)", took.Round(time.Millisecond),
		(time.Since(began) - took).Round(time.Millisecond), err)
	nodes[2].Resume()
}

// redLockMany goroutines hold a lock each, of different keys.
const redLockMany = 64

func oursOver(nodes []*redistest.Server) locker {
	var clients []redis.UniversalClient
	for _, n := range nodes {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: n.Addr()}))
	}
	locks, err := core.New(core.RedLock(clients), core.WithTTL(ttl))
	check(err)
	return &ours{locks: locks, clients: clients}
}

func redsyncOver(nodes []*redistest.Server) locker {
	var pools []redsyncpool.Pool
	s := &sync4{}
	for _, n := range nodes {
		rdb := redis.NewClient(&redis.Options{Addr: n.Addr(), PoolSize: redLockMany})
		s.clients = append(s.clients, rdb)
		pools = append(pools, goredis.NewPool(rdb))
	}
	s.rs = redsync.New(pools...)
	s.opts = []redsync.Option{redsync.WithExpiry(ttl), redsync.WithFailFast(true), redsync.WithTries(1)}
	return s
}
