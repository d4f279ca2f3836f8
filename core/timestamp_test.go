package core_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// oldLock is a service that still speaks the protocol with plain commands: SETNX, GET, GETSET, DEL.
type oldLock struct {
	rdb  redis.Cmdable
	key  string
	ttl  time.Duration
	ends int64
}

func (o *oldLock) now(ctx context.Context) (int64, error) {
	now, err := o.rdb.Time(ctx).Result()
	return now.UnixMilli(), err
}

// try takes the lock if it is free or has ended.
func (o *oldLock) try(ctx context.Context) (bool, error) {
	now, err := o.now(ctx)
	if err != nil {
		return false, err
	}
	ends := now + o.ttl.Milliseconds()
	if got, err := o.rdb.SetNX(ctx, o.key, ends, 0).Result(); got || err != nil {
		o.ends = ends
		return got, err
	}
	stood, err := o.rdb.Get(ctx, o.key).Int64()
	if err != nil {
		return false, ignoreNil(err)
	}
	if now, err = o.now(ctx); err != nil || stood >= now {
		return false, err
	}
	ends = now + o.ttl.Milliseconds()
	found, err := o.rdb.GetSet(ctx, o.key, ends).Int64()
	if err != nil {
		return false, ignoreNil(err)
	}
	o.ends = ends
	return found == stood, nil
}

func ignoreNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

func (o *oldLock) release(ctx context.Context) error {
	if now, err := o.now(ctx); err != nil || now > o.ends {
		return err // it may be another's by now
	}
	return o.rdb.Del(ctx, o.key).Err()
}

// bump is a read and a write that only a lock keeps together.
func bump(ctx context.Context, rdb redis.Cmdable) error {
	n, err := rdb.Get(ctx, "counter").Int()
	if ignoreNil(err) != nil {
		return err
	}
	return rdb.Set(ctx, "counter", n+1, 0).Err()
}

// Old and new exclude each other, whoever comes first, and wait for each other.
func TestTimestampExcludesTheOldSideAndIsExcluded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rdb := redistest.Start(t).Client()
	locks := newLocks(t, core.Timestamp(rdb))
	old := &oldLock{rdb: rdb, key: "k", ttl: time.Minute}

	lease := acquire(t, locks, "k", core.WithTTL(time.Minute))
	ends, err := rdb.Get(ctx, "k").Int64()
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(time.UnixMilli(ends)); left < 59*time.Second || left > 61*time.Second {
		t.Errorf("the lock ends in %v, want a minute", left)
	}
	if got, err := old.try(ctx); got || err != nil {
		t.Fatalf("the old side got what is held: %v, %v", got, err)
	}
	if err := lease.Extend(ctx, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	if now, _ := rdb.Get(ctx, "k").Int64(); now < ends+59_000 {
		t.Errorf("extended to %d from %d", now, ends)
	}
	release(t, lease)
	if n := rdb.Exists(ctx, "k").Val(); n != 0 {
		t.Fatal("the key stays after its release")
	}

	if got, err := old.try(ctx); !got || err != nil {
		t.Fatalf("the old side did not get what is free: %v, %v", got, err)
	}
	var busy *core.NotAcquiredError
	if _, err := locks.Acquire(ctx, "k"); !errors.As(err, &busy) || busy.RetryAfter < 59*time.Second || busy.RetryAfter > time.Minute+time.Second {
		t.Fatalf("got %v, want a refusal for a minute", err)
	}
	got := make(chan error, 1)
	go func() {
		lease, err := locks.Acquire(ctx, "k", core.WithWait(10*time.Second))
		if err == nil {
			err = lease.Release(ctx)
		}
		got <- err
	}()
	eventually(t, 5*time.Second, "a waiter", func() bool { return rdb.Exists(ctx, "latchkit~wait:{k}").Val() == 1 })
	began := time.Now()
	if err := old.release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 700*time.Millisecond {
		t.Errorf("the old side's release was noticed after %v", took)
	}
}

// A crashed holder of either side is replaced when its time has passed, and a late one is told.
func TestTimestampTakesOver(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rdb := redistest.Start(t).Client()
	locks := newLocks(t, core.Timestamp(rdb))
	old := &oldLock{rdb: rdb, key: "k", ttl: 100 * time.Millisecond}
	if got, _ := old.try(ctx); !got {
		t.Fatal("not taken")
	}
	lease := acquire(t, locks, "k", core.WithWait(5*time.Second), core.WithTTL(150*time.Millisecond), core.WithoutRenewal())
	if err := old.release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := lease.Extend(ctx, 150*time.Millisecond); err != nil {
		t.Fatalf("the old side's late release freed ours: %v", err)
	}
	eventually(t, 5*time.Second, "the old side's takeover", func() bool {
		got, err := old.try(ctx)
		return got && err == nil
	})
	if err := lease.Release(ctx); !errors.Is(err, core.ErrLost) {
		t.Errorf("release of a lost lease: %v", err)
	}
	if n := rdb.Exists(ctx, "k").Val(); n != 1 {
		t.Error("the late release freed the old side's lock")
	}
}

// A time that is not ours ends the lease, whoever has put it there, and is left alone: the owner has no other mark.
func TestTimestampOverwritten(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rdb := redistest.Start(t).Client()
	locks := newLocks(t, core.Timestamp(rdb))
	for name, op := range map[string]func(*core.Lease) error{
		"extend":  func(l *core.Lease) error { return l.Extend(ctx, 2*time.Minute) },
		"release": func(l *core.Lease) error { return l.Release(ctx) },
	} {
		lease := acquire(t, locks, name, core.WithTTL(time.Minute))
		late := time.Now().UnixMilli() + 70_000
		if err := rdb.GetSet(ctx, name, late).Err(); err != nil { //nolint:staticcheck // the protocol's own command
			t.Fatal(err)
		}
		if err := op(lease); !errors.Is(err, core.ErrLost) {
			t.Errorf("%s of what was overwritten: %v", name, err)
		}
		if stands, err := rdb.Get(ctx, name).Int64(); err != nil || stands != late {
			t.Errorf("%s: %d stands there (%v), want %d", name, stands, err, late)
		}
	}
}

// Our ended lock stays for a while, so that takers compare it, and then is no garbage.
func TestTimestampKeyHasTTL(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rdb := redistest.Start(t).Client()
	locks := newLocks(t, core.Timestamp(rdb))
	acquire(t, locks, "k", core.WithTTL(time.Second), core.WithoutRenewal())
	if ttl := rdb.PTTL(ctx, "k").Val(); ttl < 9*time.Second || ttl > 12*time.Second {
		t.Errorf("TTL is %v, want about 11 s", ttl)
	}
}

// What is no time in ms is left alone.
func TestTimestampConflicts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rdb := redistest.Start(t).Client()
	locks := newLocks(t, core.Timestamp(rdb))
	for name, c := range map[string]struct {
		set  func(key string) error
		want error
	}{
		"a list":             {func(k string) error { return rdb.RPush(ctx, k, "a").Err() }, core.ErrConflict},
		"a word":             {func(k string) error { return rdb.Set(ctx, k, "word", 0).Err() }, core.ErrConflict},
		"a word with a TTL":  {func(k string) error { return rdb.Set(ctx, k, "word", time.Minute).Err() }, core.ErrNotAcquired},
		"seconds":            {func(k string) error { return rdb.Set(ctx, k, time.Now().Unix()-100, 0).Err() }, core.ErrConflict},
		"microseconds":       {func(k string) error { return rdb.Set(ctx, k, time.Now().UnixMicro()-100, 0).Err() }, core.ErrConflict},
		"a live time":        {func(k string) error { return rdb.Set(ctx, k, time.Now().UnixMilli()+60_000, 0).Err() }, core.ErrNotAcquired},
		"a time that passed": {func(k string) error { return rdb.Set(ctx, k, time.Now().UnixMilli()-60_000, 0).Err() }, nil},
	} {
		if err := c.set(name); err != nil {
			t.Fatal(err)
		}
		before, _ := rdb.Dump(ctx, name).Result()
		lease, err := locks.Acquire(ctx, name)
		if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if after, _ := rdb.Dump(ctx, name).Result(); err != nil && after != before {
			t.Errorf("%s was touched", name)
		}
		if err == nil {
			release(t, lease)
		}
	}
}

// Both sides in a crowd, with holders that crash: the counter that they guard stays exact.
func TestTimestampCrowdOfBothSides(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	rdb := server.NewClient(func(o *redis.Options) { o.PoolSize = 40 })
	engines := []*core.Locks{newLocks(t, core.Timestamp(rdb)), newLocks(t, core.Timestamp(server.Client()))}
	const each, rounds = 6, 15
	var wg sync.WaitGroup
	var mu sync.Mutex
	lost, done := 0, 0
	for w := range each {
		wg.Go(func() {
			for range rounds {
				lease, err := engines[w%2].Acquire(ctx, "k", core.WithWait(time.Minute), core.WithTTL(5*time.Second))
				if err != nil {
					t.Error(err)
					return
				}
				err = errors.Join(bump(ctx, rdb), lease.Release(ctx))
				mu.Lock()
				done++
				if errors.Is(err, core.ErrLost) {
					lost++
				} else if err != nil {
					t.Error(err)
				}
				mu.Unlock()
			}
		})
		wg.Go(func() {
			old := &oldLock{rdb: rdb, key: "k", ttl: 5 * time.Second}
			for n := range rounds {
				crashes := n == rounds/2 && w == 0
				for {
					if crashes {
						old.ttl = 50 * time.Millisecond
					}
					got, err := old.try(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					if got {
						break
					}
					time.Sleep(time.Duration(1+w) * time.Millisecond)
				}
				if crashes {
					old.ttl = 5 * time.Second
					continue // without a release
				}
				err := errors.Join(bump(ctx, rdb), old.release(ctx))
				mu.Lock()
				done++
				mu.Unlock()
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n, err := rdb.Get(ctx, "counter").Int(); err != nil || n != done || done != 2*each*rounds-1 {
		t.Errorf("the counter is %d (%v) after %d holds", n, err, done)
	}
	if lost > 2 {
		t.Errorf("%d leases were lost, though only one holder crashed", lost)
	}
}

// The way on: a key of Timestamp is held in the eyes of Redis, and one of Redis in those of Timestamp.
func TestTimestampToRedis(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rdb := redistest.Start(t).Client()
	stamps, locks := newLocks(t, core.Timestamp(rdb)), newLocks(t, core.Redis(rdb))
	for i, pair := range [][2]*core.Locks{{stamps, locks}, {locks, stamps}} {
		key := fmt.Sprint("k", i)
		lease := acquire(t, pair[0], key)
		if _, err := pair[1].Acquire(ctx, key); !errors.Is(err, core.ErrNotAcquired) {
			t.Errorf("%d: %v, want a refusal", i, err)
		}
		release(t, lease)
		next := acquire(t, pair[1], key)
		if next.Fence() <= lease.Fence() {
			t.Errorf("%d: fence %d after %d", i, next.Fence(), lease.Fence())
		}
		release(t, next)
	}
}

func TestTimestampInspect(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rdb := redistest.Start(t).Client()
	locks := newLocks(t, core.Timestamp(rdb))
	lease := acquire(t, locks, "k", core.WithLabel("a, label; of\nmine"), core.WithTTL(time.Minute))
	info, err := locks.Inspect(ctx, "k")
	if err != nil || !info.Held || info.Foreign || len(info.Holders) != 1 {
		t.Fatalf("%+v, %v", info, err)
	}
	if h := info.Holders[0]; h.Label != "a, label; of\nmine" || h.Fence != lease.Fence() || !h.Here ||
		h.Remaining < 59*time.Second || time.Since(h.Since) > time.Minute {
		t.Errorf("%+v", h)
	}
	if err := lease.ReleaseAfter(ctx, time.Minute); err != nil {
		t.Fatal(err)
	}
	if info, err = locks.Inspect(ctx, "k"); err != nil || info.Held || !info.Completed {
		t.Errorf("%+v, %v", info, err)
	}
	if err := locks.ForceRelease(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	if info, err = locks.Inspect(ctx, "k"); err != nil || info.Held || info.Completed || len(info.Holders) != 0 {
		t.Errorf("%+v, %v", info, err)
	}
	if got, err := (&oldLock{rdb: rdb, key: "k", ttl: time.Minute}).try(ctx); !got || err != nil {
		t.Fatal(got, err)
	}
	if info, err = locks.Inspect(ctx, "k"); err != nil || !info.Held || !info.Foreign || len(info.Holders) != 1 {
		t.Errorf("%+v, %v", info, err)
	}
}
