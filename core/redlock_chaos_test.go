package core_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// The chaos of a RedLock lasts some seconds; for longer:
//
//	go test ./core -run RedLockChaos -timeout 30m -redlock.for 10m
var (
	chaosLasts = flag.Duration("redlock.for", 6*time.Second, "how long each chaos of a RedLock lasts")
	chaosSeed  = flag.Uint64("redlock.seed", 0, "of the schedule; 0: a new one")
)

// ledger is what the holders of a key have seen.
type ledger struct {
	mu     sync.Mutex
	holder *core.Lease
	fence  int64
	grants int
}

// enter judges a new hold.
func (l *ledger) enter(t *testing.T, lease *core.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if left := l.holder.Remaining(); left > 0 && lease.Remaining() > 0 {
		t.Errorf("%s: two hold it; the first has %v left", lease.Key(), left)
	}
	if lease.Fence() <= l.fence {
		t.Errorf("%s: fence %d after %d", lease.Key(), lease.Fence(), l.fence)
	}
	l.holder, l.fence = lease, max(l.fence, lease.Fence())
	l.grants++
}

// chaosWorld is nodes, the engines of several processes over them, and what their holders have seen.
type chaosWorld struct {
	*testing.T
	rand    *rand.Rand
	nodes   []*redistest.Server
	ledgers []*ledger
	errs    sync.Map // text of an error: *atomic.Int64
}

const (
	chaosKeys    = 3
	chaosTTL     = 500 * time.Millisecond
	chaosEngines = 3
	chaosWorkers = 3 // of each engine
)

func newChaosWorld(t *testing.T, nodes int) *chaosWorld {
	s := *chaosSeed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-redlock.seed %d", s)
	w := &chaosWorld{T: t, rand: rand.New(rand.NewPCG(s, s)), nodes: redistest.StartN(t, nodes)}
	for range chaosKeys {
		w.ledgers = append(w.ledgers, &ledger{})
	}
	return w
}

func (w *chaosWorld) engine() *core.Locks {
	clients := make([]redis.UniversalClient, len(w.nodes))
	for i, s := range w.nodes {
		clients[i] = s.Client()
	}
	locks, err := core.New(core.RedLock(clients, core.WithMaxTTL(chaosTTL), core.WithNodeTimeout(100*time.Millisecond)))
	if err != nil {
		w.Fatal(err)
	}
	return locks
}

// run has workers hold locks while harm is done, one at a time, until the time is over.
func (w *chaosWorld) run(harm func()) {
	ctx, cancel := context.WithTimeout(context.Background(), *chaosLasts)
	defer cancel()
	var all sync.WaitGroup
	for range chaosEngines {
		locks := w.engine()
		defer locks.Close(context.Background())
		for range chaosWorkers {
			random := rand.New(rand.NewPCG(w.rand.Uint64(), 1))
			all.Go(func() {
				for ctx.Err() == nil {
					w.hold(locks, random)
				}
			})
		}
	}
	harms := 0
	for ; ctx.Err() == nil; harms++ {
		harm()
	}
	all.Wait()
	w.Logf("harm was done %d times", harms)
	for i, l := range w.ledgers {
		w.Logf("key %d: %d grants", i, l.grants)
		if l.grants < 5 {
			w.Errorf("key %d was granted %d times only", i, l.grants)
		}
	}
	w.errs.Range(func(err, n any) bool {
		w.Logf("%d × %v", n.(*atomic.Int64).Load(), err)
		return true
	})
}

// hold is one acquire, some work, and mostly a release.
func (w *chaosWorld) hold(locks *core.Locks, random *rand.Rand) {
	key := random.IntN(chaosKeys)
	opts := []core.Option{core.WithTTL(chaosTTL/2 + time.Duration(random.IntN(int(chaosTTL/2)))), core.WithWait(time.Second)}
	crash := random.IntN(20) == 0
	if crash {
		opts = append(opts, core.WithoutRenewal()) // left to its TTL, as by a process that has died
	}
	lease, err := locks.Acquire(context.Background(), fmt.Sprint("key", key), opts...)
	if err != nil {
		w.note(err)
		return
	}
	w.ledgers[key].enter(w.T, lease)
	work := time.Duration(random.IntN(int(20 * time.Millisecond)))
	if random.IntN(10) == 0 {
		work = time.Duration(random.IntN(int(2 * chaosTTL))) // renewed on the way
	}
	select {
	case <-lease.Context().Done():
	case <-time.After(work):
	}
	if crash {
		return
	}
	if err := lease.Release(context.Background()); err != nil {
		w.note(err)
	}
}

func (w *chaosWorld) note(err error) {
	kind := "other: " + err.Error()
	for _, known := range []error{core.ErrNotAcquired, core.ErrLost, core.ErrUnavailable} {
		if errors.Is(err, known) {
			kind = known.Error()
			break
		}
	}
	n, _ := w.errs.LoadOrStore(kind, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

func (w *chaosWorld) node() *redistest.Server { return w.nodes[w.rand.IntN(len(w.nodes))] }

func (w *chaosWorld) pause(most time.Duration) { time.Sleep(time.Duration(w.rand.Int64N(int64(most)))) }

// Nodes are killed and come back empty, one at a time.
func TestRedLockChaosRestarts(t *testing.T) {
	t.Parallel()
	w := newChaosWorld(t, 5)
	w.run(func() {
		w.pause(1500 * time.Millisecond)
		w.node().RestartEmpty()
	})
}

// Nodes are killed, stopped, emptied and lose their scripts, in any order, up to two at a time.
func TestRedLockChaosAnything(t *testing.T) {
	t.Parallel()
	w := newChaosWorld(t, 5)
	w.run(func() {
		n := w.node()
		switch w.rand.IntN(6) {
		case 0:
			n.Kill()
			w.pause(500 * time.Millisecond)
			n.RestartEmpty()
		case 1, 2:
			n.Pause()
			w.pause(2 * chaosTTL)
			n.Resume()
		case 3:
			n.Client().FlushAll(context.Background())
		case 4:
			other := w.node()
			other.Pause()
			n.Client().FlushAll(context.Background())
			w.pause(chaosTTL)
			other.Resume()
		case 5:
			n.Client().ScriptFlush(context.Background())
		}
		w.pause(time.Second)
	})
}

// The same with three nodes, where every majority of which one forgets leaves a single one that remembers.
func TestRedLockChaosThreeNodes(t *testing.T) {
	t.Parallel()
	w := newChaosWorld(t, 3)
	w.run(func() {
		w.pause(2 * time.Second)
		if w.rand.IntN(2) == 0 {
			w.node().RestartEmpty()
		} else {
			w.node().Client().FlushAll(context.Background())
		}
	})
}
