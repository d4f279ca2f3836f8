package core_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/core/locktest"
	"github.com/latchkit/latchkit/internal/redistest"
)

func TestConformanceLocal(t *testing.T) {
	t.Parallel() // with the other suites: they wait more than they work
	locktest.Run(t, func(*testing.T) core.Backend { return core.Local() })
}

func TestConformanceEmbedded(t *testing.T) {
	t.Parallel() // with the other suites: they wait more than they work
	locktest.Run(t, func(t *testing.T) core.Backend { return core.Redis(redistest.Embedded(t)) })
}

func TestConformanceRedis(t *testing.T) {
	t.Parallel() // with the other suites: they wait more than they work
	server := redistest.Start(t)
	locktest.Run(t, func(t *testing.T) core.Backend {
		rdb := server.Client()
		if err := rdb.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { noCompanionWithoutTTL(t, rdb) })
		return core.Redis(rdb)
	})
}

// What the suite may skip, and where.
func TestKindsThatABackendCarries(t *testing.T) {
	rdb := func() *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // never asked
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	kinds := map[string]core.Hold{
		"exclusive": {},
		"shared":    {Kind: core.Shared},
		"limited":   {Kind: core.Limited, Limit: 2},
		"fair":      {Fair: true},
		"joined":    {Join: "0123456789abcdef0123456789abcdef"},
	}
	every := []string{"exclusive", "shared", "limited", "fair", "joined"}
	for _, c := range []struct {
		backend core.Backend
		carries []string
	}{
		{core.Redis(rdb()), every},
		{core.Redis(redis.NewClusterClient(&redis.ClusterOptions{})), every},
		{core.Timestamp(rdb()), every[:1]},
		{core.RedLock([]redis.UniversalClient{rdb(), rdb(), rdb()}), every[:2]},
	} {
		for name, hold := range kinds {
			hold.Key, hold.TTL = "k", core.DefaultTTL
			err := c.backend.(core.Supporter).Supports(hold)
			if carries := slices.Contains(c.carries, name); carries != (err == nil) || err != nil && !errors.Is(err, core.ErrInvalidOption) {
				t.Errorf("%s, %s: %v", c.backend.Name(), name, err)
			}
		}
	}
	if _, some := core.Local().(core.Supporter); some {
		t.Error("Local refuses some")
	}
}
