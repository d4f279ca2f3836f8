package core_test

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// infoField returns a field of INFO, "" when there is none.
func infoField(t testing.TB, s *redistest.Server, section, field string) string {
	t.Helper()
	for line := range strings.Lines(s.Client().Info(t.Context(), section).Val()) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), field+":"); ok {
			return value
		}
	}
	return ""
}

// knowsVariant tells whether the server knows the script that is for the process of run only.
func knowsVariant(t testing.TB, s *redistest.Server, run string) bool {
	t.Helper()
	known, err := s.Client().ScriptExists(t.Context(), core.VariantHash(run)).Result()
	must(t, err)
	return known[0]
}

// needsRedis7 skips the test on servers that keep no script to themselves.
func needsRedis7(t testing.TB, s *redistest.Server) {
	t.Helper()
	major, _, _ := strings.Cut(infoField(t, s, "server", "redis_version"), ".")
	if n, _ := strconv.Atoi(major); n < 7 {
		t.Skip("before Redis 7 scripts reach replicas, so there are no variants to test")
	}
}

// A node whose process is known by its variant of the script is not asked for INFO, and is known so again after SCRIPT
// FLUSH and after a restart.
func TestRedLockKnowsAProcessWithoutInfo(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3)
	needsRedis7(t, ns[0])
	locks := newLocks(t, ns.redlock(core.WithMaxTTL(time.Second)))
	pair := func() {
		t.Helper()
		release(t, acquire(t, locks, "k", core.WithTTL(time.Second), core.WithWait(5*time.Second)))
	}
	infos := func() int {
		calls, _, _ := strings.Cut(infoField(t, ns[0], "commandstats", "cmdstat_info"), ",")
		n, _ := strconv.Atoi(strings.TrimPrefix(calls, "calls="))
		return n
	}
	quiet := func(when string) {
		t.Helper()
		eventually(t, 10*time.Second, "grants without INFO "+when, func() bool {
			pair()
			before := infos()
			for range 5 {
				pair()
			}
			return infos() == before+1 // the one that counts
		})
	}
	quiet("at first")
	must(t, ns[0].Client().ScriptFlush(t.Context()).Err())
	quiet("after SCRIPT FLUSH")
	ns[0].RestartEmpty()
	quiet("after a restart")
}

// The variant of a process comes to no other, not even by a client that still takes the other for it: with the marker
// that a replica got from its master it would have that replica believed.
func TestRedLockVariantStaysWithItsProcess(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 4)
	needsRedis7(t, ns[0])
	masters, other := ns[:3], ns[3]
	clients := clientsOf(masters)
	moving, lead := movingClient(t, masters[0])
	clients[0] = moving
	locks := newLocks(t, core.RedLock(clients, core.WithNodeTimeout(time.Second)))
	run := infoField(t, masters[0], "server", "run_id")
	pair := func() { release(t, acquire(t, locks, "k")) }
	eventually(t, 10*time.Second, "the process knows its variant", func() bool {
		pair()
		return knowsVariant(t, masters[0], run)
	})
	host, port, _ := net.SplitHostPort(masters[0].Addr())
	must(t, other.Client().ReplicaOf(t.Context(), host, port).Err())
	eventually(t, 10*time.Second, "the replica has the marker", func() bool {
		return other.Client().Exists(t.Context(), "latchkit~node").Val() == 1
	})
	lead(other)
	readonly := time.Now().Add(2 * time.Second) // longer than a variant is not brought again
	for time.Now().Before(readonly) {
		pair()
		if knowsVariant(t, other, run) {
			t.Fatal("a replica knows the variant of its master")
		}
	}
	must(t, other.Client().ReplicaOf(t.Context(), "NO", "ONE").Err())
	eventually(t, 10*time.Second, "the promoted replica knows a variant of its own", func() bool {
		pair()
		if knowsVariant(t, other, run) {
			t.Fatal("a promoted replica knows the variant of its master")
		}
		return knowsVariant(t, other, infoField(t, other, "server", "run_id"))
	})
}
