package core_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// Each answer comes well within the node timeout, and the several that it takes to open a connection do not.
func TestRedLockOverASlowNetwork(t *testing.T) {
	t.Parallel()
	const timeout, latency = 500 * time.Millisecond, 200 * time.Millisecond
	var nodes []redis.UniversalClient
	var proxies []*redistest.Proxy
	for _, s := range redistest.StartN(t, 3) {
		p := s.Proxy(t)
		p.Latency(latency)
		proxies = append(proxies, p)
		nodes = append(nodes, p.NewClient(nil))
	}
	locks := newLocks(t, core.RedLock(nodes, core.WithNodeTimeout(timeout)))
	works := func() bool {
		lease, err := locks.Acquire(t.Context(), "slow")
		return err == nil && lease.Release(t.Context()) == nil
	}
	eventually(t, time.Minute, "a lock", works)
	for _, p := range proxies {
		p.Refuse()
		p.Restore()
		p.Latency(latency)
	}
	eventually(t, time.Minute, "a lock when all connections are lost", works)
}
