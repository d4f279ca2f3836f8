package redistest

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/internal/embedded"
)

// Embedded is a client of a miniredis of its own, in this process, whose TTLs age. It needs no redis-server.
func Embedded(t testing.TB) redis.UniversalClient {
	t.Helper()
	addr, stop, err := embedded.Start()
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(stop)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}
