package load

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// Many wait for one key, in two engines that stand for two processes, while it is held. They cost the server next to
// nothing meanwhile, and when it is free each is served, one at a time.
func TestWaitersOnOneKey(t *testing.T) {
	server := redistest.Start(t)
	var engines [2]*core.Locks
	for i := range engines {
		var err error
		if engines[i], err = core.New(core.Redis(server.Client())); err != nil {
			t.Fatal(err)
		}
		defer engines[i].Close(t.Context())
	}
	holder, err := engines[0].Acquire(t.Context(), "wanted")
	if err != nil {
		t.Fatal(err)
	}
	n := either(2_000, 10_000)
	var all sync.WaitGroup
	var inside, served atomic.Int64
	for i := range n {
		all.Go(func() {
			lease, err := engines[i%len(engines)].Acquire(context.Background(), "wanted", core.WithWait(core.Forever))
			if err != nil {
				t.Error(err)
				return
			}
			if inside.Add(1) != 1 {
				t.Error("two holders at a time")
			}
			served.Add(1)
			inside.Add(-1)
			if err := lease.Release(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	idle := time.Duration(either(1, 10)) * time.Second
	time.Sleep(idle) // for how long they wait, at the least
	before := calls(t, server)
	time.Sleep(idle)
	meanwhile := calls(t, server) - before
	t.Logf("%d waiters for %v: %d commands", n, idle, meanwhile)
	if meanwhile > 50*int64(1+idle.Seconds()) {
		t.Errorf("%d waiters have the server serve %d commands in %v", n, meanwhile, idle)
	}
	if served.Load() != 0 {
		t.Errorf("%d were served while another held", served.Load())
	}
	began := time.Now()
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	t.Logf("served: %s; %d commands", perSecond(n, began), calls(t, server)-before-meanwhile)
	if served.Load() != int64(n) {
		t.Errorf("%d of %d were served", served.Load(), n)
	}
}
