package main

import (
	"context"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// redlock: a majority of five servers, and then with one of them stopped.
func redlock(s *stage) {
	nodes := redistest.StartN(s, 5)
	var counting []*redis.Client
	for _, n := range nodes {
		counting = append(counting, n.NewClient(func(o *redis.Options) { o.PoolSize = 1 }))
	}
	open := func(name string) locker {
		if name == redsyncName {
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

	at := open(oursName)
	defer at.close()
	l.work(oursName, at)
	const name = "latchkit, one stopped"
	for _, stopped := range []bool{false, true} {
		if stopped {
			nodes[2].Pause()
		}
		for range s.rounds {
			t := l.work(name, at)
			if !stopped {
				t.Peer = "latchkit, alone"
			}
			s.report.Turns = append(s.report.Turns, t)
		}
	}
	ratio := s.report.typical(name, turn.pairP50) / s.report.typical("latchkit, alone", turn.pairP50)
	s.atMost("one node stopped / healthy, medians of a pair", ratio, "×", 1.5)
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
		rdb := redis.NewClient(&redis.Options{Addr: n.Addr()})
		s.clients = append(s.clients, rdb)
		pools = append(pools, goredis.NewPool(rdb))
	}
	s.rs = redsync.New(pools...)
	s.opts = []redsync.Option{redsync.WithExpiry(ttl), redsync.WithFailFast(true), redsync.WithTries(1)}
	return s
}
