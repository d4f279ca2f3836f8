package core_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/core/locktest"
	"github.com/latchkit/latchkit/internal/redistest"
)

func TestConformanceRedLock(t *testing.T) {
	t.Parallel() // with the other suites: they wait more than they work
	servers := redistest.StartN(t, 5)
	locktest.Run(t, func(t *testing.T) core.Backend {
		clients := make([]redis.UniversalClient, len(servers))
		for i, s := range servers {
			clients[i] = s.Client()
			if err := clients[i].FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		return core.RedLock(clients, core.WithNodeTimeout(time.Second)) // on a small machine five servers share a core
	})
}
