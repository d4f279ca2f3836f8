package redistest_test

import (
	"slices"
	"testing"
	"time"

	"github.com/latchkit/latchkit/internal/redistest"
)

func TestSentinel(t *testing.T) {
	slow(t)
	s := redistest.StartSentinel(t, 2, 3)
	rdb := s.Client()
	if err := rdb.Set(bg(t), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n := rdb.Wait(bg(t), 2, 5*time.Second).Val(); n != 2 {
		t.Fatalf("%d replicas have it, want 2", n)
	}

	first := s.Master()
	if replicas := s.Replicas(); len(replicas) != 2 || slices.Contains(replicas, first) {
		t.Errorf("master %v, replicas %v", first, replicas)
	}
	second := s.Failover(t)
	if second == first || s.Master() != second {
		t.Errorf("from %v to %v, and the master is %v", first, second, s.Master())
	}
	second.Kill()
	third := s.WaitFailover(t)
	if third == second {
		t.Errorf("%v is dead and master", second)
	}
	if got := third.Client().Get(bg(t), "key").Val(); got != "value" {
		t.Errorf("after two failovers: %q", got)
	}
	within(t, 20*time.Second, func() error { return rdb.Set(bg(t), "key", "new", 0).Err() })
}
