package core_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkit/latchkit/core"
)

// TestStress lets a crowd do at random whatever can be done with a lock, on several engines over one store that is slow,
// hangs, loses replies, carries out what it said it had not, and forgets to wake; and judges what came of it. Time is a
// bubble's. Each run has a seed, which it tells when it fails; LATCHKIT_STRESS=5m goes on for as long as that.
func TestStress(t *testing.T) {
	limit, runs := time.Duration(0), 4
	if text := os.Getenv("LATCHKIT_STRESS"); text != "" {
		var err error
		if limit, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	for began := time.Now(); runs > 0 || time.Since(began) < limit; runs-- {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) { stress(t, seed) })
		if t.Failed() {
			return
		}
	}
}

const (
	stressTTL   = 400 * time.Millisecond // the longest
	stressTrip  = 2300 * time.Millisecond
	stressKeys  = 3
	stressCrowd = 24
	stressTurns = 25
)

// dice is a random source for many goroutines. Who comes first is chance as well, so a seed brings back much, not all.
type dice struct {
	mu   sync.Mutex
	rand *rand.Rand
}

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rand.IntN(n)
}

func (d *dice) one(in int) bool                   { return d.n(in) == 0 }
func (d *dice) up(to time.Duration) time.Duration { return time.Duration(d.n(int(to))) }

// chaotic is a store that does to operations what a network and a server can.
type chaotic struct {
	whole
	dice   *dice
	landed sync.WaitGroup
}

func (c *chaotic) trouble(ctx context.Context, op *core.Op) (skip bool) {
	deadline, _ := ctx.Deadline()
	switch {
	case c.dice.one(3):
		time.Sleep(min(c.dice.up(20*time.Millisecond), time.Until(deadline)))
	case c.dice.one(60): // hangs
		hang(ctx, op)
		return true
	case c.dice.one(40):
		down(op)
		op.Unsent = c.dice.one(2)
		return true
	case c.dice.one(40): // lands later than it is waited for
		late := *op
		c.landed.Go(func() {
			time.Sleep(c.dice.up(time.Second))
			c.Backend.Do(ctx, []*core.Op{&late})
		})
		down(op)
		return true
	}
	return false
}

func (c *chaotic) lose(op *core.Op) {
	if c.dice.one(30) {
		down(op)
	}
}

// Watch forgets a message now and then, and does not always stand.
func (c *chaotic) Watch(ctx context.Context, key string, wake func(by, next string)) (func(), error) {
	if c.dice.one(10) {
		return nil, core.ErrUnavailable
	}
	return c.whole.Watch(ctx, key, func(by, next string) {
		if !c.dice.one(10) {
			wake(by, next)
		}
	})
}

// nervous is a Tracer that panics now and then where a caller can recover from it.
type nervous struct {
	journal
	dice *dice
}

func (n *nervous) AcquireEnd(ctx context.Context, e core.AcquireEnd) any {
	if n.dice.one(100) {
		panic("AcquireEnd")
	}
	return n.journal.AcquireEnd(ctx, e)
}

func (n *nervous) ReleaseStart(ctx context.Context, e core.ReleaseStart) context.Context {
	if n.dice.one(100) {
		panic("ReleaseStart")
	}
	return n.journal.ReleaseStart(ctx, e)
}

func (n *nervous) WaitStart(ctx context.Context, key string) {
	if n.dice.one(100) {
		panic("WaitStart")
	}
	n.journal.WaitStart(ctx, key)
}

// judge knows who holds what.
type judge struct {
	*testing.T
	mu    sync.Mutex
	held  map[string][]*core.Lease
	fence map[string]int64
	// unsure: somebody took the key away by force, and its holders elsewhere learn of it by then.
	unsure map[string]time.Time
}

func (j *judge) forced(key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unsure[key] = time.Now().Add(stressTTL)
}

func (j *judge) granted(lease *core.Lease) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now, key := time.Now(), lease.Key()
	if !now.After(j.unsure[key]) || lease.Remaining() == 0 {
		return
	}
	for _, other := range j.held[key] {
		if other.Remaining() > 0 {
			j.Errorf("%s: fence %d is granted while %d holds it for %v more", key, lease.Fence(), other.Fence(), other.Remaining())
		}
	}
	j.held[key] = append(j.held[key][:0], lease)
	if lease.Fence() <= j.fence[key] {
		j.Errorf("%s: fence %d after %d", key, lease.Fence(), j.fence[key])
	}
	j.fence[key] = max(j.fence[key], lease.Fence())
}

// leaves is called before the lease is released: from then on it holds nothing.
func (j *judge) leaves(lease *core.Lease) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, other := range j.held[lease.Key()] {
		if other == lease {
			j.held[lease.Key()] = append(j.held[lease.Key()][:i], j.held[lease.Key()][i+1:]...)
			return
		}
	}
}

func stress(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		d := &dice{rand: rand.New(rand.NewPCG(seed, seed))}
		b := &chaotic{whole: whole{newScripted()}, dice: d}
		b.set(b.trouble, b.lose)
		j := &judge{T: t, held: map[string][]*core.Lease{}, fence: map[string]int64{}, unsure: map[string]time.Time{}}
		var engines []*core.Locks
		tracer := &nervous{dice: d}
		for i := range 4 {
			var opts []core.Option
			if i == 0 {
				opts = append(opts, core.WithTracer(tracer))
			}
			locks, err := core.New(b, opts...)
			if err != nil {
				t.Fatal(err)
			}
			engines = append(engines, locks)
		}
		var crowd sync.WaitGroup
		for range stressCrowd {
			crowd.Go(func() {
				for range stressTurns {
					quietly(func() { turn(j, d, engines[d.n(len(engines))]) })
				}
			})
		}
		crowd.Go(func() {
			for range 10 {
				time.Sleep(d.up(time.Second))
				key := fmt.Sprint("k", d.n(stressKeys))
				j.forced(key)
				engines[d.n(len(engines))].ForceRelease(t.Context(), key)
				j.forced(key)
			}
		})
		crowd.Go(func() { // one of them closes in the midst of it
			time.Sleep(d.up(3 * time.Second))
			closeSoon(t, engines[len(engines)-1], d.up(2*time.Second))
		})
		crowd.Wait()
		for _, locks := range engines {
			closeSoon(t, locks, 10*time.Second)
		}
		b.landed.Wait()
		time.Sleep(10 * time.Second) // TTLs, and trips on their way out
		for i, locks := range engines {
			if n := locks.Gates(); n != 0 {
				t.Errorf("engine %d keeps track of %d keys", i, n)
			}
		}
		for i := range stressKeys {
			if b.held(t, fmt.Sprint("k", i)) {
				t.Errorf("k%d is held still", i)
			}
		}
		if tracer.held != 0 || tracer.lowest < 0 {
			t.Errorf("the Tracer counts %d holds, %d at the least", tracer.held, tracer.lowest)
		}
	})
}

func closeSoon(t *testing.T, locks *core.Locks, d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	began := time.Now()
	locks.Close(ctx)
	if took := time.Since(began); took > d+stressTrip {
		t.Errorf("Close took %v, its context %v", took, d)
	}
}

// turn acquires something somehow, works, and releases.
func turn(j *judge, d *dice, locks *core.Locks) {
	parent, cancel := context.WithCancel(context.Background())
	defer cancel()
	if d.one(3) {
		parent, cancel = context.WithTimeout(parent, d.up(time.Second))
		defer cancel()
	}
	if d.one(5) {
		time.AfterFunc(d.up(500*time.Millisecond), cancel)
	}
	var opts []core.Option
	ttl := stressTTL
	if d.one(3) {
		ttl = 50*time.Millisecond + d.up(stressTTL-50*time.Millisecond)
	}
	opts = append(opts, core.WithTTL(ttl))
	wait := time.Duration(0)
	if !d.one(4) {
		wait = d.up(2 * time.Second)
		opts = append(opts, core.WithWait(wait))
	}
	if d.one(5) {
		opts = append(opts, core.WithoutRenewal())
	}
	if d.one(8) {
		opts = append(opts, core.WithMaxHold(time.Millisecond+d.up(300*time.Millisecond)))
	}
	began := time.Now()
	lease, err := locks.Acquire(parent, fmt.Sprint("k", d.n(stressKeys)), opts...)
	most := wait + stressTrip
	if wait == 0 {
		most += stressTrip // it may share another's first
	}
	if took := time.Since(began); took > most {
		j.Errorf("an acquire that waits for %v took %v: %v", wait, took, err)
	}
	if err != nil {
		judgeError(j, parent, err)
		return
	}
	j.granted(lease)
	defer func() {
		j.leaves(lease)
		finish(j, d, parent, lease)
	}()
	for range d.n(3) {
		work(j, d, locks, lease)
	}
}

func judgeError(j *judge, parent context.Context, err error) {
	ended := parent.Err()
	if d, ok := parent.Deadline(); ok && ended == nil && !time.Now().Before(d) {
		ended = context.DeadlineExceeded // its timer is about to fire
	}
	for _, target := range []error{core.ErrNotAcquired, core.ErrUnavailable, core.ErrClosed, core.ErrLost, ended} {
		if target != nil && errors.Is(err, target) {
			return
		}
	}
	j.Errorf("an acquire failed with %v", err)
}

func work(j *judge, d *dice, locks *core.Locks, lease *core.Lease) {
	switch d.n(4) {
	case 0:
		ctx, cancel := context.WithTimeout(context.Background(), d.up(300*time.Millisecond))
		defer cancel()
		lease.Extend(ctx, stressTTL)
	case 1:
		inner, err := locks.Acquire(lease.Context(), lease.Key(), core.WithMaxHold(time.Millisecond+d.up(time.Second)))
		if err == nil {
			if inner.Fence() != lease.Fence() {
				j.Errorf("re-entered fence %d at %d", lease.Fence(), inner.Fence())
			}
			time.Sleep(d.up(50 * time.Millisecond))
			inner.Release(context.Background())
		}
	case 2:
		select {
		case <-lease.Context().Done():
		case <-time.After(d.up(2 * stressTTL)):
		}
	default:
		time.Sleep(d.up(100 * time.Millisecond))
	}
}

// finish releases, and looks at how it ended.
func finish(j *judge, d *dice, parent context.Context, lease *core.Lease) {
	began := time.Now()
	var err error
	if d.one(10) {
		err = lease.ReleaseAfter(parent, d.up(100*time.Millisecond))
	} else {
		err = lease.Release(parent)
	}
	if took := time.Since(began); took > stressTrip {
		j.Errorf("a release took %v: %v", took, err)
	}
	cause := context.Cause(lease.Context())
	known := false
	for _, target := range []error{core.ErrReleased, core.ErrLost, core.ErrMaxHold, core.ErrClosed, context.Cause(parent)} {
		known = known || target != nil && errors.Is(cause, target)
	}
	switch {
	case !known:
		j.Errorf("a released lease's context: %v", cause)
	case err == nil && errors.Is(cause, core.ErrLost), errors.Is(err, core.ErrUnavailable) && errors.Is(cause, core.ErrLost):
		j.Errorf("released with %v, but its context says %v", err, cause)
	case err != nil && !errors.Is(err, core.ErrLost) && !errors.Is(err, core.ErrUnavailable):
		j.Errorf("a release failed with %v", err)
	}
}
