package core_test

import (
	"testing"

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
		return core.Redis(rdb)
	})
}
