package core_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/history"
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

// chaosWorld is nodes, the engines of several processes over them, and what their holders have seen.
type chaosWorld struct {
	*testing.T
	rand  *rand.Rand
	nodes []*redistest.Server
	dir   string   // of the histories, one for each engine
	errs  sync.Map // text of an error: *atomic.Int64
}

const (
	chaosKeys    = 3 // key0 and so on
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
	return &chaosWorld{T: t, rand: rand.New(rand.NewPCG(s, s)), nodes: redistest.StartN(t, nodes), dir: t.TempDir()}
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
	var paths []string
	var recorders []*history.Recorder
	for i := range chaosEngines {
		locks := w.engine()
		defer locks.Close(context.Background())
		name := fmt.Sprint("engine", i)
		paths = append(paths, filepath.Join(w.dir, name))
		recorder, err := history.Create(paths[i], name)
		must(w, err)
		recorders = append(recorders, recorder)
		for range chaosWorkers {
			random := rand.New(rand.NewPCG(w.rand.Uint64(), 1))
			all.Go(func() {
				for ctx.Err() == nil {
					w.hold(locks, recorder, random)
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
	for _, r := range recorders {
		must(w, r.Close())
	}
	w.judge(paths)
	w.errs.Range(func(err, n any) bool {
		w.Logf("%d × %v", n.(*atomic.Int64).Load(), err)
		return true
	})
}

// judge judges what the holders have seen.
func (w *chaosWorld) judge(paths []string) {
	holds, err := history.Read(paths...)
	must(w, err)
	granted := map[string]int{}
	for _, h := range holds {
		if h.Granted() {
			granted[h.Key]++
			granted[h.Kind.String()]++
		}
	}
	w.Logf("granted: %v", granted)
	for _, what := range []string{"key0", "key1", "key2", core.Exclusive.String(), core.Shared.String()} {
		if granted[what] < 5 {
			w.Errorf("%s was granted %d times only", what, granted[what])
		}
	}
	for _, v := range append(history.Overlaps(holds), history.Fences(holds, true)...) {
		w.Error(v)
	}
}

// hold is one acquire, some work, and mostly a release.
func (w *chaosWorld) hold(locks *core.Locks, recorder *history.Recorder, random *rand.Rand) {
	request := history.Request{Key: fmt.Sprint("key", random.IntN(chaosKeys))}
	opts := []core.Option{core.WithTTL(chaosTTL/2 + time.Duration(random.IntN(int(chaosTTL/2)))), core.WithWait(time.Second)}
	if random.IntN(2) == 0 {
		request.Kind = core.Shared
		opts = append(opts, core.WithShared())
	}
	crash := random.IntN(20) == 0
	if crash {
		opts = append(opts, core.WithoutRenewal()) // left to its TTL, as by a process that has died
	}
	entry := recorder.Ask(request)
	lease, err := locks.Acquire(context.Background(), request.Key, opts...)
	if err != nil {
		entry.Refused(err)
		w.note(err)
		return
	}
	entry.Got(lease)
	work := time.Duration(random.IntN(int(20 * time.Millisecond)))
	if random.IntN(10) == 0 {
		work = time.Duration(random.IntN(int(2 * chaosTTL))) // renewed on the way
	}
	for end := time.Now().Add(work); time.Now().Before(end) && entry.Still(lease); {
		time.Sleep(min(10*time.Millisecond, time.Until(end)))
	}
	if crash {
		return
	}
	entry.Releasing()
	err = lease.Release(context.Background())
	entry.Released(err)
	if err != nil {
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
