package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/latchkit/latchkit/internal/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t testing.TB) *redis.Client {
	t.Helper()
	addr, stop, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// spin passes time without giving up the processor for longer than asked, as a sleep may.
func spin(d time.Duration) {
	for began := time.Now(); time.Since(began) < d; {
	}
}

func TestTTLAges(t *testing.T) {
	rdb, ctx := start(t), context.Background()
	const ttl = 50 * time.Millisecond
	for range 10 {
		sent := time.Now()
		if err := rdb.SetArgs(ctx, "key", "value", redis.SetArgs{Mode: "NX", TTL: ttl}).Err(); err != nil {
			t.Fatal(err)
		}
		answered := time.Now()
		for seen := time.Now(); ; seen = time.Now() {
			err := rdb.Get(ctx, "key").Err()
			gone := time.Now()
			if errors.Is(err, redis.Nil) {
				if lived := gone.Sub(sent); lived < ttl {
					t.Errorf("gone %v after it was asked for", lived)
				}
				break
			}
			if err != nil || seen.Sub(answered) > ttl {
				t.Fatalf("there %v after it was set, %v", seen.Sub(answered), err)
			}
		}
	}
}

func TestTimeAndTTLAgree(t *testing.T) {
	rdb, ctx := start(t), context.Background()
	before := time.Now()
	got := rdb.Time(ctx).Val()
	if after := time.Now(); got.Before(before.Truncate(time.Microsecond)) || got.After(after) {
		t.Errorf("TIME is %v, and it was between %v and %v", got, before, after)
	}
	// Both are read in one script, at one instant, and so have the same sum at any time.
	script := redis.NewScript(`
		local now = redis.call('TIME')
		return now[1] * 1000 + math.floor(now[2] / 1000) + redis.call('PTTL', KEYS[1])`)
	rdb.Set(ctx, "key", "value", time.Hour)
	first := script.Run(ctx, rdb, []string{"key"}).Val().(int64)
	spin(30 * time.Millisecond)
	second := script.Run(ctx, rdb, []string{"key"}).Val().(int64)
	if d := second - first; d < -1 || d > 1 {
		t.Errorf("TIME and PTTL moved apart by %d ms in 30 ms", d)
	}
}

func TestTimeStandsInScript(t *testing.T) {
	rdb, ctx := start(t), context.Background()
	rdb.Set(ctx, "key", "value", 10*time.Millisecond)
	got, err := rdb.Eval(ctx, `
		local before = redis.call('TIME')
		local there = redis.call('EXISTS', KEYS[1])
		for i = 1, 5000 do redis.call('GET', KEYS[1]) end
		local after = redis.call('TIME')
		return {there, redis.call('EXISTS', KEYS[1]), before[1] == after[1] and before[2] == after[2] and 1 or 0}`,
		[]string{"key"}).Int64Slice()
	if err != nil {
		t.Fatal(err)
	}
	if got[0] != got[1] || got[2] != 1 {
		t.Errorf("there at the start %d, at the end %d; same TIME %d", got[0], got[1], got[2])
	}
}

func TestTimeNeverTurnsBack(t *testing.T) {
	rdb := start(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var last time.Time
			for range 300 {
				now := rdb.Time(context.Background()).Val()
				if now.Before(last) {
					t.Errorf("TIME went from %v to %v", last, now)
				}
				last = now
			}
		})
	}
	wg.Wait()
}

func TestServersShareNothing(t *testing.T) {
	a, b, ctx := start(t), start(t), context.Background()
	a.Set(ctx, "key", "value", 0)
	if n := b.DBSize(ctx).Val(); n != 0 {
		t.Errorf("%d keys", n)
	}
}

func BenchmarkSet(b *testing.B) {
	for _, keys := range []int{0, 1000, 10000} {
		b.Run(fmt.Sprint(keys, " keys"), func(b *testing.B) {
			rdb, ctx := start(b), context.Background()
			for i := range keys {
				rdb.Set(ctx, fmt.Sprint("key", i), "value", time.Hour)
			}
			for b.Loop() {
				rdb.Set(ctx, "key", "value", time.Hour)
			}
		})
	}
}
