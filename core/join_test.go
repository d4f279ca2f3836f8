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

// plainLock is what redsync, redislock and many a service of its own do: a random string with a TTL, and a script that
// compares before it deletes. bench/ has the same with the libraries themselves.
type plainLock struct {
	rdb   redis.Scripter
	cmd   redis.Cmdable
	key   string
	value string
}

var compareAndDelete = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)

func (p *plainLock) try(ctx context.Context, ttl time.Duration) (bool, error) {
	return p.cmd.SetNX(ctx, p.key, p.value, ttl).Result()
}

func (p *plainLock) release(ctx context.Context) (bool, error) {
	n, err := compareAndDelete.Run(ctx, p.rdb, []string{p.key}, p.value).Int()
	return n == 1, err
}

func TestOthersAreExcludedAndExclude(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rdb := redistest.Start(t).Client()
	locks := newLocks(t, core.Redis(rdb))
	theirs := &plainLock{rdb, rdb, "k", "H8c0Q2kU3tZ9="}

	if got, err := theirs.try(ctx, 10*time.Second); !got || err != nil {
		t.Fatal(got, err)
	}
	var busy *core.NotAcquiredError
	if _, err := locks.Acquire(ctx, "k"); !errors.As(err, &busy) || busy.RetryAfter <= 9*time.Second || busy.RetryAfter > 10*time.Second {
		t.Fatalf("got %v, want a refusal for 10 s", err)
	}
	if info, err := locks.Inspect(ctx, "k"); err != nil || !info.Held || !info.Foreign {
		t.Errorf("%+v, %v", info, err)
	}

	// Their release is told to nobody, and is noticed all the same.
	var lease *core.Lease
	var began time.Time
	for kind, opts := range map[string][]core.Option{"shared": {core.WithShared()}, "limited": {core.WithLimit(3)}, "fair": {core.WithFair()}, "": nil} {
		if lease != nil {
			release(t, lease)
			if got, err := theirs.try(ctx, 10*time.Second); !got || err != nil {
				t.Fatal(got, err)
			}
		}
		got := make(chan *core.Lease, 1)
		go func() {
			lease, err := locks.Acquire(ctx, "k", append(opts, core.WithWait(30*time.Second))...)
			if err != nil {
				t.Error(err)
			}
			got <- lease
		}()
		eventually(t, 5*time.Second, "a waiter", func() bool { return rdb.Exists(ctx, "latchkit~wait:{k}").Val() == 1 })
		began = time.Now()
		if freed, err := theirs.release(ctx); !freed || err != nil {
			t.Fatal(freed, err)
		}
		lease = <-got
		if took := time.Since(began); took > 700*time.Millisecond {
			t.Errorf("%s: their release was noticed after %v", kind, took)
		}
	}
	release(t, lease)
	lease = acquire(t, locks, "k")

	if got, err := theirs.try(ctx, time.Second); got || err != nil {
		t.Fatalf("they got what we hold: %v, %v", got, err)
	}
	if freed, err := theirs.release(ctx); freed || err != nil {
		t.Fatalf("they freed what we hold: %v, %v", freed, err)
	}
	release(t, lease)

	// They crash: their TTL is ours to wait for, and no longer.
	if got, err := theirs.try(ctx, 300*time.Millisecond); !got || err != nil {
		t.Fatal(got, err)
	}
	began = time.Now()
	lease = acquire(t, locks, "k", core.WithWait(10*time.Second))
	if took := time.Since(began); took > 600*time.Millisecond {
		t.Errorf("their lock of 300 ms kept us out for %v", took)
	}
	// We crash, so to say: their takeover is our loss, and theirs stays.
	must(t, rdb.Del(ctx, "k").Err())
	if got, err := theirs.try(ctx, time.Minute); !got || err != nil {
		t.Fatal(got, err)
	}
	wantErr(t, lease.Release(ctx), core.ErrLost)
	if freed, err := theirs.release(ctx); !freed || err != nil {
		t.Errorf("our late release freed theirs: %v, %v", freed, err)
	}
}

// Both in a crowd: what the lock guards stays exact.
func TestCrowdWithOthers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rdb := redistest.Start(t).NewClient(func(o *redis.Options) { o.PoolSize = 40 })
	locks := newLocks(t, core.Redis(rdb))
	const each, rounds = 6, 20
	var wg sync.WaitGroup
	for w := range each {
		wg.Go(func() {
			for range rounds {
				lease, err := locks.Acquire(ctx, "k", core.WithWait(time.Minute))
				if err != nil {
					t.Error(err)
					return
				}
				if err := errors.Join(bump(ctx, rdb), lease.Release(ctx)); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			theirs := &plainLock{rdb, rdb, "k", fmt.Sprint("other", w)}
			for range rounds {
				for {
					got, err := theirs.try(ctx, time.Minute)
					if err != nil {
						t.Error(err)
						return
					}
					if got {
						break
					}
					time.Sleep(time.Duration(1+w) * time.Millisecond)
				}
				freed := false
				err := bump(ctx, rdb)
				if err == nil {
					freed, err = theirs.release(ctx)
				}
				if err != nil || !freed {
					t.Errorf("they lost what they held: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if n, err := rdb.Get(ctx, "counter").Int(); err != nil || n != 2*each*rounds {
		t.Errorf("the counter is %d (%v) after %d holds", n, err, 2*each*rounds)
	}
}
