package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// A service that migrates instance by instance has both libraries at work on the same keys.

// neighbour is another library's lock of one key, taken at most once at a time.
type neighbour struct {
	lock   func(ctx context.Context, ttl time.Duration) error
	extend func(ctx context.Context, ttl time.Duration) error
	unlock func(ctx context.Context) error
	// taken is what lock says when somebody else holds the key.
	taken func(error) bool
}

func neighbours(rdb *redis.Client, key string) map[string]*neighbour {
	var held *redislock.Lock
	var mutex *redsync.Mutex
	rs := redsync.New(goredis.NewPool(rdb))
	return map[string]*neighbour{
		"redislock": {
			lock: func(ctx context.Context, ttl time.Duration) (err error) {
				held, err = redislock.Obtain(ctx, rdb, key, ttl, nil)
				return err
			},
			extend: func(ctx context.Context, ttl time.Duration) error { return held.Refresh(ctx, ttl, nil) },
			unlock: func(ctx context.Context) error { return held.Release(ctx) },
			taken:  func(err error) bool { return errors.Is(err, redislock.ErrNotObtained) },
		},
		"redsync": {
			lock: func(ctx context.Context, ttl time.Duration) error {
				mutex = rs.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(1))
				return mutex.LockContext(ctx)
			},
			extend: func(ctx context.Context, ttl time.Duration) error {
				ok, err := mutex.ExtendContext(ctx)
				if err == nil && !ok {
					err = errors.New("not extended")
				}
				return err
			},
			unlock: func(ctx context.Context) error {
				ok, err := mutex.UnlockContext(ctx)
				if err == nil && !ok {
					err = errors.New("not unlocked")
				}
				return err
			},
			taken: func(err error) bool {
				var taken *redsync.ErrTaken
				return errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed)
			},
		},
	}
}

func TestNeighboursExcludeEachOther(t *testing.T) {
	ctx := context.Background()
	rdb := redistest.Start(t).Client()
	locks, err := core.New(core.Redis(rdb))
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(ctx)
	for name, n := range neighbours(rdb, "shared") {
		t.Run(name, func(t *testing.T) {
			if err := n.lock(ctx, 10*time.Second); err != nil {
				t.Fatal(err)
			}
			var busy *core.NotAcquiredError
			if _, err := locks.Acquire(ctx, "shared"); !errors.As(err, &busy) || busy.RetryAfter <= 0 || busy.RetryAfter > 10*time.Second {
				t.Fatalf("latchkit got %v, want a refusal for up to 10 s", err)
			}
			if err := n.extend(ctx, 10*time.Second); err != nil {
				t.Fatalf("its extension, after we tried: %v", err)
			}
			got := make(chan error, 1)
			var lease *core.Lease
			go func() {
				var err error
				lease, err = locks.Acquire(ctx, "shared", core.WithWait(20*time.Second))
				got <- err
			}()
			if err := n.unlock(ctx); err != nil {
				t.Fatalf("its release, while we wait: %v", err)
			}
			began := time.Now()
			if err := <-got; err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("its release was noticed after %v", took)
			}
			if err := n.lock(ctx, time.Second); err == nil || !n.taken(err) {
				t.Fatalf("it got %v, want that the lock is taken", err)
			}
			if err := lease.Extend(ctx, time.Minute); err != nil {
				t.Fatalf("our extension, after it tried: %v", err)
			}
			if err := lease.Release(ctx); err != nil {
				t.Fatal(err)
			}
			if err := n.lock(ctx, 10*time.Second); err != nil {
				t.Fatalf("it gets what we released: %v", err)
			}
			if err := n.unlock(ctx); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// All three in turns: a counter that only the lock keeps together stays exact.
func TestNeighboursCountExactly(t *testing.T) {
	ctx := context.Background()
	rdb := redistest.Start(t).Client()
	const rounds = 50
	done := make(chan error)
	bump := func() error {
		n, err := rdb.Get(ctx, "counter").Int()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		return rdb.Set(ctx, "counter", n+1, 0).Err()
	}
	workers := 0
	for range 2 {
		for name, n := range neighbours(rdb, "shared") {
			workers++
			go func() {
				for range rounds {
					err := n.lock(ctx, 30*time.Second)
					for ; err != nil && n.taken(err); err = n.lock(ctx, 30*time.Second) {
						time.Sleep(2 * time.Millisecond)
					}
					if err == nil {
						err = errors.Join(bump(), n.unlock(ctx))
					}
					if err != nil {
						done <- fmt.Errorf("%s: %w", name, err)
						return
					}
				}
				done <- nil
			}()
		}
		locks, err := core.New(core.Redis(rdb))
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close(ctx)
		for range 2 {
			workers++
			go func() {
				for range rounds {
					lease, err := locks.Acquire(ctx, "shared", core.WithWait(time.Minute))
					if err == nil {
						err = errors.Join(bump(), lease.Release(ctx))
					}
					if err != nil {
						done <- fmt.Errorf("latchkit: %w", err)
						return
					}
				}
				done <- nil
			}()
		}
	}
	for range workers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n, err := rdb.Get(ctx, "counter").Int(); err != nil || n != workers*rounds {
		t.Errorf("the counter is %d (%v) after %d holds", n, err, workers*rounds)
	}
}
