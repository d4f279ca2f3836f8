package core_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

const fenceCounter = "latchkit~fence"

// A counter that is ahead of the clock, which was set back, is never lowered: fences grow from it, those of a batch too,
// and the lock shows the fence that its holder was given.
func TestFencesGrowWhereTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rdb := redistest.Start(t).Client()
	b := core.Redis(rdb)
	op := func(a core.Action, i int) *core.Op {
		return &core.Op{Action: a, Hold: core.Hold{Key: fmt.Sprint("k", i), TTL: time.Minute}, Owner: fmt.Sprintf("%032x", i),
			Waiter: strings.Repeat("e", 16), Fences: 1}
	}
	counter := func() int64 {
		n, err := rdb.Get(ctx, fenceCounter).Int64()
		must(t, err)
		return n
	}
	grants := func(ops ...*core.Op) {
		t.Helper()
		last := counter()
		b.Do(ctx, ops)
		greatest, held := last, map[string]string{}
		for _, o := range ops {
			if o.Action != core.Try {
				continue
			}
			if o.Verdict != core.Granted || o.Fence <= last {
				t.Fatalf("%q: %v, %v, fence %d after %d", o.Key, o.Verdict, o.Err, o.Fence, last)
			}
			held[o.Key], greatest = fmt.Sprint(o.Fence), max(greatest, o.Fence)
		}
		for key, fence := range held {
			if shown := strings.Split(rdb.Get(ctx, key).Val(), ":")[1]; shown != fence {
				t.Errorf("%q: fence %s, but the lock shows %s", key, fence, shown)
			}
			if ttl := rdb.PTTL(ctx, key).Val(); ttl < 50*time.Second {
				t.Errorf("%q ends in %v", key, ttl)
			}
		}
		if n := counter(); n != greatest {
			t.Errorf("the counter is %d after the fence %d", n, greatest)
		}
	}
	ahead := time.Now().Add(time.Hour).UnixMicro()
	must(t, rdb.Set(ctx, fenceCounter, ahead, 0).Err())
	grants(op(core.Try, 1))
	grants(op(core.Try, 2), op(core.Try, 3))
	grants(op(core.Release, 1), op(core.Try, 1), op(core.Release, 1), op(core.Try, 1))

	// A grant that breaks off, and is given back, lowers nothing.
	must(t, rdb.RPush(ctx, "latchkit~wait:{k6}", "no set").Err())
	before, registered := counter(), op(core.Try, 6)
	registered.Waiting = true
	b.Do(ctx, []*core.Op{registered})
	if n := counter(); registered.Verdict == core.Granted || n < before || rdb.Exists(ctx, "k6").Val() != 0 {
		t.Errorf("%v, %v; the counter is %d after %d, the lock: %q", registered.Verdict, registered.Err, n, before,
			rdb.Get(ctx, "k6").Val())
	}

	// Nor does a batch.
	last := counter()
	must(t, rdb.RPush(ctx, "latchkit~wait:{k5}", "no set").Err())
	broken := []*core.Op{op(core.Try, 4), op(core.Try, 5), op(core.Try, 5)}
	broken[1].Owner, broken[2].Owner = strings.Repeat("a", 32), strings.Repeat("b", 32)
	b.Do(ctx, broken)
	if n := counter(); n < last || n < broken[0].Fence {
		t.Errorf("the counter is %d after %d and the fence %d", n, last, broken[0].Fence)
	}
}

// Where the counter is no counter nothing is locked, and nothing stays behind.
func TestACounterThatIsNone(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rdb := redistest.Start(t).Client()
	locks := newLocks(t, core.Redis(rdb))
	must(t, rdb.RPush(ctx, fenceCounter, "a").Err())
	if _, err := locks.Acquire(ctx, "k"); !errors.Is(err, core.ErrConflict) {
		t.Errorf("%v, want ErrConflict", err)
	}
	if _, err := rdb.Get(ctx, "k").Result(); err != redis.Nil {
		t.Errorf("the lock: %v, want none", err)
	}
	must(t, rdb.Del(ctx, fenceCounter).Err())
	release(t, acquire(t, locks, "k"))
}

// A text that is no number goes the way of a counter that is lost: the clock is above what was given.
func TestGarbageInTheCounterIsOverwritten(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rdb := redistest.Start(t).Client()
	b := core.Redis(rdb)
	for i, text := range []string{"abc", "", "1e30", "-1", "inf", "nan"} {
		must(t, rdb.Set(ctx, fenceCounter, text, 0).Err())
		began := time.Now().UnixMicro()
		op := tryOnce(b, fmt.Sprint("k", i))
		if op.Verdict != core.Granted || op.Fence < began {
			t.Errorf("after %q: %v, %v, fence %d", text, op.Verdict, op.Err, op.Fence)
		}
		if n, err := rdb.Get(ctx, fenceCounter).Int64(); n != op.Fence {
			t.Errorf("after %q: the counter is %d, %v, want %d", text, n, err, op.Fence)
		}
	}
}

// A grant that finds itself again, for its script broke off before it could save the counter, does so then: of every kind.
func TestAReplaySavesItsFence(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rdb := redistest.Start(t).Client()
	b := core.Redis(rdb)
	for _, kind := range []core.Kind{core.Exclusive, core.Shared, core.Limited} {
		must(t, rdb.FlushAll(ctx).Err())
		must(t, rdb.Set(ctx, fenceCounter, time.Now().Add(time.Hour).UnixMicro(), 0).Err()) // the clock was set back
		must(t, rdb.RPush(ctx, "latchkit~wait:{broken}", "no set").Err())
		must(t, rdb.Set(ctx, "broken", strings.Repeat("f", 32)+":1:1.000000:", time.Minute).Err())
		try := func(key, owner string) *core.Op {
			return &core.Op{Action: core.Try, Hold: core.Hold{Key: key, Kind: kind, Limit: 3, TTL: time.Minute},
				Owner: strings.Repeat(owner, 32), Waiter: strings.Repeat("e", 16), Fences: 1}
		}
		first, next := try("k", "a"), try("k", "b")
		b.Do(ctx, []*core.Op{first, try("broken", "c")})
		b.Do(ctx, []*core.Op{{Action: core.Release, Hold: first.Hold, Owner: first.Owner}})
		b.Do(ctx, []*core.Op{next})
		if first.Verdict != core.Granted || next.Verdict != core.Granted || next.Fence <= first.Fence {
			t.Errorf("%v: %v, %v, fence %d; then %v, %v, fence %d", kind, first.Verdict, first.Err, first.Fence, next.Verdict,
				next.Err, next.Fence)
		}
	}
}
