package core_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

func clientsOf(servers []*redistest.Server) []redis.UniversalClient {
	clients := make([]redis.UniversalClient, len(servers))
	for i, s := range servers {
		clients[i] = s.Client()
	}
	return clients
}

// BenchmarkAcquireRelease compares a RedLock with a single server: an acquire and its release by a lone caller. To stay
// at most 6 times the single server's is the aim.
func BenchmarkAcquireRelease(b *testing.B) {
	servers := redistest.StartN(b, 5)
	for _, c := range []struct {
		name    string
		backend core.Backend
	}{
		{"redis", core.Redis(servers[0].Client())},
		{"redlock-3", core.RedLock(clientsOf(servers[:3]))},
		{"redlock-5", core.RedLock(clientsOf(servers))},
	} {
		b.Run(c.name, func(b *testing.B) {
			ctx := context.Background()
			locks := newLocks(b, c.backend)
			acquires := make([]time.Duration, 0, b.N)
			before := calls(b, servers[0])
			for range b.N {
				began := time.Now()
				lease := acquire(b, locks, "bench")
				acquires = append(acquires, time.Since(began))
				if err := lease.Release(ctx); err != nil {
					b.Fatal(err)
				}
			}
			slices.Sort(acquires)
			b.ReportMetric(float64(acquires[len(acquires)/2].Microseconds()), "acquire-µs")
			// Two where no fence had to be written back.
			b.ReportMetric(float64(calls(b, servers[0])-before)/float64(b.N), "calls/op")
		})
	}
}

// BenchmarkRedLockNodeStopped compares five healthy nodes with five of which one is stopped. The medians should stay
// within 1.5 times the healthy ones.
func BenchmarkRedLockNodeStopped(b *testing.B) {
	servers := redistest.StartN(b, 5)
	locks := newLocks(b, core.RedLock(clientsOf(servers)))
	release(b, acquire(b, locks, "bench"))
	for _, name := range []string{"healthy", "stopped"} {
		b.Run(name, func(b *testing.B) {
			if name == "stopped" {
				servers[2].Pause()
				defer servers[2].Resume()
			}
			var acquires, extends, releases []time.Duration
			for b.Loop() {
				began := time.Now()
				lease := acquire(b, locks, "bench")
				acquired := time.Now()
				if err := lease.Extend(b.Context(), 31*time.Second); err != nil {
					b.Fatal(err)
				}
				extended := time.Now()
				release(b, lease)
				acquires = append(acquires, acquired.Sub(began))
				extends = append(extends, extended.Sub(acquired))
				releases = append(releases, time.Since(extended))
			}
			for what, took := range map[string][]time.Duration{"acquire": acquires, "extend": extends, "release": releases} {
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), what+"-µs")
			}
		})
	}
}
