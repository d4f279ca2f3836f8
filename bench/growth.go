package main

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// growth: from 1 to 1,000 goroutines, from 1 to 1,000 keys, from 1 to 3 shards, and what the cost of a lock predicts.
func growth(s *stage) {
	addr, counting := s.redis()
	at := newOurs(place{addr: addr, waits: true})
	defer at.close()
	keys := keysOf(1000)
	steps := []int{1, 10, 100, 1000}
	for range min(s.rounds, 5) {
		for _, n := range steps {
			s.run(fmt.Sprintf("goroutines=%d", n), at, load{goroutines: n, servers: servers(counting),
				key: func(g, _ int) string { return keys[g] }})
		}
		for _, n := range steps {
			s.run(fmt.Sprintf("keys=%d", n), at, load{goroutines: 1000, servers: servers(counting),
				key: func(g, _ int) string { return keys[g%n] }})
		}
	}
	clusters := s.clusters(3)
	for range min(s.rounds, 5) {
		for i, c := range clusters {
			s.run(shardName(i+1), c.at, load{goroutines: shardLoad, servers: c.counting, key: func(g, _ int) string { return keys[g] }})
		}
	}
	s.predict()
}

func (s *stage) run(name string, at locker, l load) {
	l.length = 250 * time.Millisecond
	s.report.Turns = append(s.report.Turns, l.work(name, at))
}

const shardLoad = 256

// clusterAt is latchkit at work on a Cluster.
type clusterAt struct {
	at       *ours
	counting []*redis.Client
}

// clusters starts Clusters of 1 to n masters.
func (s *stage) clusters(n int) (all []clusterAt) {
	for masters := 1; masters <= n; masters++ {
		cluster := redistest.StartCluster(s, masters, 0)
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
		locks, err := core.New(core.Redis(rdb), core.WithTTL(ttl))
		check(err)
		c := clusterAt{at: &ours{locks: locks, clients: []redis.UniversalClient{rdb}}}
		for _, node := range cluster.Nodes() {
			c.counting = append(c.counting, node.NewClient(func(o *redis.Options) { o.PoolSize = 1 }))
		}
		all = append(all, c)
	}
	return all
}

func shardName(n int) string { return fmt.Sprintf("shards=%d", n) }

// predict says what one shard's cost of a lock means for more, and holds it against what was measured with three.
func (s *stage) predict() {
	r := &s.report
	server, client := r.typical(shardName(1), turn.serverCPU), r.typical(shardName(1), turn.clientCPU)
	for _, n := range []int{1, 10, 100} {
		s.fact("predicted for %d shards with a core each: %.0f locks a second (%.1f µs of a shard's CPU a lock), asked for by clients with %.1f cores",
			n, float64(n)*1e6/server, server, float64(n)*client/server)
	}
	measured := r.typical(shardName(3), turn.serverCPU)
	s.atMost("server CPU of a lock on 3 shards, off the prediction from 1", 100*abs(measured-server)/server, "%", 25)
	s.fact("3 shards: %.2f µs of server CPU a lock measured, %.2f predicted; wall time %.2f µs a lock measured, %.2f predicted from the CPU of one shard's lock on these cores",
		measured, server, r.typical(shardName(3), turn.perPair), (server+client)/2)
}

func abs(x float64) float64 { return max(x, -x) }
