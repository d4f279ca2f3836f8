package main

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// turn is what one contender did in its share of a round.
type turn struct {
	Peer    string
	Pairs   int64 // locks taken and given back
	Elapsed time.Duration
	Errors  int64
	Stuck   int // goroutines that did not come back when their context had ended

	Allocs, Bytes     float64       // of a pair, in the client
	Client, Server    float64       // µs of CPU of a pair
	Calls, Scripts    float64       // commands of a pair, those in scripts included; and scripts
	Usec              float64       // µs in scripts of a pair
	In, Out           float64       // bytes of a pair, as the server counts them
	Goroutines        int           // beside those that lock
	P50, P99, Longest time.Duration // of waits for the lock
	PairP50           time.Duration // of the wait and the release after it
}

// perPair is the wall time of a pair in µs.
func (t turn) perPair() float64 {
	if t.Pairs == 0 {
		return 0
	}
	return float64(t.Elapsed.Microseconds()) / float64(t.Pairs)
}

// load is what the goroutines of a turn do.
type load struct {
	goroutines int
	length     time.Duration
	key        func(goroutine, i int) string // nil: one hot key
	timed      bool                          // waits are recorded
	ctx        context.Context
	servers    []*redis.Client // whose counters are read
}

// grace is how long goroutines may take to come back once their context has ended.
const grace = 2 * time.Second

// work has l done by contender at, named name.
func (l load) work(name string, at locker) turn {
	t := turn{Peer: name}
	base := runtime.NumGoroutine()
	parent := l.ctx
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := parent, func() {}
	if l.timed {
		ctx, cancel = context.WithTimeout(parent, l.length+grace)
	}
	defer cancel()
	var (
		stop   atomic.Bool
		errs   atomic.Int64
		counts = make([]paddedCount, l.goroutines)
		all    = make([]waits, l.goroutines)
		pairs  = make([]waits, l.goroutines)
		back   sync.WaitGroup
		before runtime.MemStats
		after  runtime.MemStats
	)
	runtime.GC()
	runtime.ReadMemStats(&before)
	counted, cpu, began := ask(l.servers...), ownCPU(), time.Now()
	for g := range l.goroutines {
		back.Go(func() {
			own, n := &all[g], &counts[g].n
			for i := 0; !stop.Load(); i++ {
				key := l.key(g, i)
				var asked time.Time
				if l.timed {
					asked = time.Now()
				}
				held, err := at.lock(ctx, key)
				if err != nil {
					errs.Add(1)
					continue
				}
				if l.timed {
					own.add(time.Since(asked))
				}
				if err := at.unlock(context.WithoutCancel(ctx), key, held); err != nil {
					errs.Add(1)
					continue
				}
				if l.timed {
					pairs[g].add(time.Since(asked))
				}
				n.Add(1)
			}
		})
	}
	time.Sleep(l.length)
	t.Goroutines = runtime.NumGoroutine() - base - l.goroutines
	for i := range counts {
		t.Pairs += counts[i].n.Load()
	}
	t.Elapsed = time.Since(began)
	used, told := ownCPU()-cpu, ask(l.servers...).since(counted)
	runtime.ReadMemStats(&after)
	stop.Store(true)
	returned := make(chan struct{})
	go func() { back.Wait(); close(returned) }()
	select {
	case <-returned:
	case <-time.After(l.length/4 + 200*time.Millisecond):
		cancel() // whoever still waits now has waited for the rest of the turn at least
		select {
		case <-returned:
		case <-time.After(grace):
			t.Stuck = l.goroutines // at least one; which, nobody can tell
		}
	}
	t.Errors = errs.Load()
	t.describe(used, told, &before, &after)
	if l.timed && t.Stuck == 0 {
		var sum, sumPairs waits
		for i := range all {
			sum.merge(&all[i])
			sumPairs.merge(&pairs[i])
		}
		t.P50, t.P99, t.Longest, t.PairP50 = sum.at(0.5), sum.at(0.99), sum.Max, sumPairs.at(0.5)
	}
	return t
}

type paddedCount struct {
	n atomic.Int64
	_ [56]byte
}

// describe breaks totals down to a pair.
func (t *turn) describe(cpu time.Duration, told counters, before, after *runtime.MemStats) {
	if t.Pairs == 0 {
		return
	}
	n := float64(t.Pairs)
	t.Allocs = float64(after.Mallocs-before.Mallocs) / n
	t.Bytes = float64(after.TotalAlloc-before.TotalAlloc) / n
	t.Client, t.Server = float64(cpu.Microseconds())/n, float64(told.cpu.Microseconds())/n
	t.Calls, t.Scripts, t.Usec = told.calls/n, told.scripts/n, told.usec/n
	t.In, t.Out = told.in/n, told.out/n
}
