package core_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/core/locktest"
	"github.com/latchkit/latchkit/internal/redistest"
)

func TestConformanceCluster(t *testing.T) {
	t.Parallel() // with the other suites: they wait more than they work
	cluster := redistest.StartCluster(t, 3, 0)
	locktest.Run(t, func(t *testing.T) core.Backend {
		wipe(t, cluster.Nodes())
		return core.Redis(cluster.Client())
	})
}

func TestConformanceSentinel(t *testing.T) {
	t.Parallel() // with the other suites: they wait more than they work
	set := redistest.StartSentinel(t, 2, 3)
	locktest.Run(t, func(t *testing.T) core.Backend {
		wipe(t, set.Nodes()[:1])
		return core.Redis(set.Client())
	})
}

func TestConformanceTimestamp(t *testing.T) {
	t.Parallel() // with the other suites: they wait more than they work
	server := redistest.Start(t)
	locktest.Run(t, func(t *testing.T) core.Backend {
		wipe(t, []*redistest.Server{server})
		return core.Timestamp(server.Client())
	})
}

// wipe empties servers that a test is given.
func wipe(t *testing.T, servers []*redistest.Server) {
	t.Helper()
	for _, s := range servers {
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
		if err := rdb.FlushAll(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		rdb.Close()
	}
}
