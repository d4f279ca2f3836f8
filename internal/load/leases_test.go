package load

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// One process holds many leases, which are renewed while the server is busy with others' work. None is lost.
func TestHeldLeases(t *testing.T) {
	server := redistest.Start(t)
	locks, err := core.New(core.Redis(server.Client()), core.WithTTL(time.Duration(either(6, 30))*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(t.Context())
	before := measure(t, server)

	began := time.Now()
	leases := acquireMany(t, locks, either(2_000, 100_000))
	t.Logf("acquired: %s", perSecond(len(leases), began))
	firstDeadlines := make([]time.Time, len(leases))
	for i, lease := range leases {
		firstDeadlines[i] = lease.Deadline()
	}
	held := measure(t, server)
	t.Logf("held: %v; %d bytes of heap a lease", held, (held.heap-before.heap)/uint64(len(leases)))
	if more := held.goroutines - before.goroutines; more > 50 {
		t.Errorf("%d goroutines hold %d leases", more, len(leases))
	}

	served := calls(t, server)
	stop := keepBusy(server.Client())
	time.Sleep(holdFor()) // not a wait for anything: it is for how long they are to be held
	others := stop()
	t.Logf("meanwhile others had the server serve %d commands, %.0f a second; all in all it served %d", others,
		float64(others)/holdFor().Seconds(), calls(t, server)-served)

	lost, renewed := 0, 0
	for i, lease := range leases {
		if lease.Remaining() == 0 {
			lost++
		}
		if lease.Deadline().After(firstDeadlines[i]) {
			renewed++
		}
	}
	if lost > 0 || renewed != len(leases) {
		t.Errorf("of %d leases %d were lost and %d were renewed", len(leases), lost, renewed)
	}
	began = time.Now()
	var failed atomic.Int64
	each(len(leases), func(i int) {
		if err := leases[i].Release(t.Context()); err != nil && failed.Add(1) == 1 {
			t.Errorf("release: %v", err)
		}
	})
	if n := failed.Load(); n > 1 {
		t.Errorf("%d releases failed", n)
	}
	t.Logf("released: %s", perSecond(len(leases), began))
}

func acquireMany(t *testing.T, locks *core.Locks, n int) []*core.Lease {
	t.Helper()
	leases := make([]*core.Lease, n)
	each(n, func(i int) {
		var err error
		if leases[i], err = locks.Acquire(context.Background(), fmt.Sprint("held:", i)); err != nil {
			t.Error(err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return leases
}

const hands = 128

// each calls do for 0 to n-1, by so many hands.
func each(n int, do func(i int)) {
	var all sync.WaitGroup
	for hand := range hands {
		all.Go(func() {
			for i := hand; i < n; i += hands {
				do(i)
			}
		})
	}
	all.Wait()
}

// keepBusy has the server work for others until stop, which says on how many commands.
func keepBusy(rdb *redis.Client) (stop func() int) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var mu sync.Mutex
	served := 0
	for worker := range 4 {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				cmds, _ := rdb.Pipelined(context.Background(), func(p redis.Pipeliner) error {
					for j := range 200 {
						p.Set(ctx, fmt.Sprintf("other:%d:%d", worker, (i*200+j)%10_000), "some text of a hundred bytes, more or less: "+
							"the quick brown fox jumps over the lazy dog", time.Minute)
					}
					p.Keys(ctx, fmt.Sprintf("other:%d:?", worker)) // which looks at every key, and holds up the others
					return nil
				})
				mu.Lock()
				served += len(cmds)
				mu.Unlock()
			}
		})
	}
	return func() int {
		cancel()
		all.Wait()
		return served
	}
}
