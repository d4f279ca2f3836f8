package redistest_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/internal/redistest"
)

// slow marks the tests that wait for servers to find one another.
func slow(t *testing.T) {
	if testing.Short() {
		t.Skip("not with -short: servers take seconds to find one another")
	}
	t.Parallel()
}

func TestClusterOfMasters(t *testing.T) {
	slow(t)
	c := redistest.StartCluster(t, 3, 0)
	rdb := c.Client()
	seen := map[*redistest.Server]bool{}
	for i := range 30 {
		key := fmt.Sprint("key", i)
		if err := rdb.Set(bg(t), key, i, 0).Err(); err != nil {
			t.Fatal(err)
		}
		master := c.MasterFor(key)
		if got, err := master.Client().Get(bg(t), key).Int(); err != nil || got != i {
			t.Errorf("%v, said to serve %s, has %d, %v", master, key, got, err)
		}
		seen[master] = true
	}
	if len(seen) != 3 {
		t.Errorf("thirty keys on %d of 3 masters", len(seen))
	}
}

func TestClusterMigration(t *testing.T) {
	slow(t)
	c := redistest.StartCluster(t, 2, 0)
	rdb := c.Client()
	rdb.Set(bg(t), "{a}1", "value", 0)

	m := c.StartMigration("{a}1")
	err := m.From.Client().Get(bg(t), "{a}2").Err()
	if _, ask := redis.IsAskError(err); !ask {
		t.Errorf("an absent key of a moving slot: %v, want ASK", err)
	}
	m.MoveKeys()
	m.Finish()
	if got := c.MasterFor("{a}1"); got != m.To {
		t.Errorf("served by %v, want %v", got, m.To)
	}
	if got := m.To.Client().Get(bg(t), "{a}1").Val(); got != "value" {
		t.Errorf("at its new place: %q", got)
	}
	if from, to := c.MigrateSlot("{a}1"); from != m.To || to != m.From {
		t.Errorf("moved back from %v to %v", from, to)
	}
	if got := rdb.Get(bg(t), "{a}1").Val(); got != "value" {
		t.Errorf("back: %q", got)
	}
}

func TestClusterFailover(t *testing.T) {
	slow(t)
	c := redistest.StartCluster(t, 3, 1)
	rdb := c.Client()
	rdb.Set(bg(t), "key", "value", 0)

	old := c.MasterFor("key")
	promoted := c.Failover("key")
	if promoted == old || c.MasterFor("key") != promoted {
		t.Errorf("from %v to %v, and served by %v", old, promoted, c.MasterFor("key"))
	}
	// The former master is a replica now, and takes over in its turn.
	promoted.Kill()
	if got := c.WaitFailover("key", promoted); got != old {
		t.Errorf("after the crash served by %v, want %v", got, old)
	}
	if got := old.Client().Get(bg(t), "key").Val(); got != "value" {
		t.Errorf("after the crash: %q", got)
	}
	promoted.Restart()
	c.WaitOK()
	if err := promoted.Client().Set(bg(t), "key", "other", 0).Err(); err == nil || errors.Is(err, redis.Nil) {
		t.Error("the master that came back takes writes")
	}
}
