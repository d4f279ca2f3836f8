package core_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// L29: a process whose waiters stand first in line is killed. Whoever stands behind it is served within a heartbeat, and
// not when its places are dropped.
func TestL29DeadWaitersAreSkipped(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client()
	holder, next := newLocks(t, core.Redis(rdb)), newLocks(t, core.Redis(rdb))
	lease := acquire(t, holder, "k")
	waiting := exec.Command(os.Args[0], "-test.run=^TestChildWaitsInLine$")
	waiting.Env = append(os.Environ(), "LATCHKIT_WAITS="+server.Addr())
	if err := waiting.Start(); err != nil {
		t.Fatal(err)
	}
	inLine := func(n int64) func() bool {
		return func() bool {
			return rdb.ZCount(t.Context(), "latchkit~line:{k}", "1e15", "+inf").Val() == n
		}
	}
	eventually(t, 20*time.Second, "the process stands in line", inLine(3))
	got := make(chan time.Time, 1)
	go func() {
		lease, err := next.Acquire(context.Background(), "k", core.WithFair(), core.WithWait(time.Minute))
		if err != nil {
			t.Error(err)
		}
		got <- time.Now()
		release(t, lease)
	}()
	eventually(t, 5*time.Second, "one stands behind it", inLine(4))
	_ = waiting.Process.Kill()
	_ = waiting.Wait()
	at := time.Now()
	noCompanionWithoutTTL(t, rdb)
	release(t, lease)
	took := (<-got).Sub(at)
	if took > 2*core.Heartbeat { // the half of it for a busy machine
		t.Errorf("the next was served after %v", took)
	}
	t.Logf("the next was served after %v", took)
	noCompanionWithoutTTL(t, rdb)
	eventually(t, core.WaiterTTL+time.Second, "the dead leave the line", func() bool {
		lease, err := next.Acquire(t.Context(), "k", core.WithFair(), core.WithWait(time.Second))
		if err == nil {
			release(t, lease)
		}
		return inLine(0)()
	})
}

// One who is not heard of for a while, its process standing still say, is passed over and keeps its place.
func TestSilentWaitersKeepTheirPlaces(t *testing.T) {
	oneStore(t, func(t *testing.T, b core.Backend) {
		t.Parallel() // it mostly waits
		do := func(a core.Action, n int) *core.Op {
			engine := strings.Repeat(fmt.Sprint(n), 16)
			op := &core.Op{Action: a, Owner: engine + engine, Waiter: engine, Ticket: engine + engine, Fences: 1,
				Hold: core.Hold{Key: "k", Fair: true, TTL: time.Minute}}
			b.Do(t.Context(), []*core.Op{op})
			if op.Err != nil {
				t.Fatal(op.Err)
			}
			return op
		}
		arrives := time.Now()
		for n := 1; n <= 3; n++ {
			do(core.Arrive, n)
		}
		eventually(t, 2*core.Heartbeat, "the second passes the first", func() bool {
			do(core.Arrive, 3)
			return do(core.Try, 2).Verdict == core.Granted
		})
		if waited := time.Since(arrives); waited < core.Heartbeat-10*time.Millisecond { // of which the server's clock may be ahead
			t.Errorf("the first was passed over after %v", waited)
		}
		do(core.Release, 2)
		if v := do(core.Arrive, 1); v.Fenced != 0 {
			t.Error("the first has lost its place")
		}
		if v := do(core.Try, 3).Verdict; v != core.Refused {
			t.Errorf("the third has passed the first: verdict %d", v)
		}
		if v := do(core.Try, 1).Verdict; v != core.Granted {
			t.Errorf("the first: verdict %d", v)
		}
		do(core.Release, 1)
		if v := do(core.Try, 3).Verdict; v != core.Granted {
			t.Errorf("the third: verdict %d", v)
		}
	})
}

// Who waits alone, and leads, says that it lives as those do who stand behind others.
func TestALoneFairWaiterIsHeardOf(t *testing.T) {
	b := whole{newScripted()}
	holder, waiter := newLocks(t, b), newLocks(t, b)
	lease := acquire(t, holder, "k")
	got := make(chan *core.Lease, 1)
	go func() { got <- acquire(t, waiter, "k", core.WithFair(), core.WithWait(time.Minute)) }()
	eventually(t, 20*core.Heartbeat, "three beats", func() bool { return b.count(core.Arrive) >= 3 })
	release(t, lease)
	release(t, <-got)
}

// TestChildWaitsInLine is the process that is killed; by itself it has nothing to do.
func TestChildWaitsInLine(t *testing.T) {
	addr := os.Getenv("LATCHKIT_WAITS")
	if addr == "" {
		return
	}
	locks := newLocks(t, core.Redis(redis.NewClient(&redis.Options{Addr: addr})))
	for range 2 {
		go func() { _, _ = locks.Acquire(t.Context(), "k", core.WithFair(), core.WithWait(time.Minute)) }()
	}
	_, _ = locks.Acquire(t.Context(), "k", core.WithFair(), core.WithWait(time.Minute))
}

// L28: while others come, give up and come again, a place in line stays where it is, and none lies ahead of the clock.
func TestPlacesDoNotDrift(t *testing.T) {
	t.Parallel() // it mostly waits
	rdb := redistest.Start(t).Client()
	holder, waiting, coming := newLocks(t, core.Redis(rdb)), newLocks(t, core.Redis(rdb)), newLocks(t, core.Redis(rdb))
	lease := acquire(t, holder, "k")
	got := make(chan *core.Lease)
	go func() { got <- acquire(t, waiting, "k", core.WithFair(), core.WithWait(time.Minute)) }()
	places := func() []redis.Z {
		return rdb.ZRangeByScoreWithScores(t.Context(), "latchkit~line:{k}", &redis.ZRangeBy{Min: "1e15", Max: "+inf"}).Val()
	}
	eventually(t, 5*time.Second, "one stands in line", func() bool { return len(places()) == 1 })
	first := places()[0]
	came := 0
	for end := time.Now().Add(core.WaiterTTL * 2 / 5); time.Now().Before(end); came++ { // over some heartbeats
		_, err := coming.Acquire(t.Context(), "k", core.WithFair(), core.WithWait(5*time.Millisecond))
		wantErr(t, err, core.ErrNotAcquired)
		all := places()
		now := rdb.Time(t.Context()).Val()
		if all[0] != first {
			t.Fatalf("the first place is %v, was %v", all[0], first)
		}
		for _, z := range all {
			if ahead := int64(z.Score) - now.UnixMicro(); ahead > 0 {
				t.Fatalf("after %d more have come a place lies %d µs ahead of the clock", came, ahead)
			}
		}
	}
	release(t, lease)
	release(t, <-got)
}

// A server whose clock is set back does not have the living wait for the dead for that long.
func TestDeadWaitersUnderAClockThatIsSetBack(t *testing.T) {
	t.Parallel() // it mostly waits
	server := redistest.Start(t, redistest.WithFaketime("+0"))
	b := core.Redis(server.Client())
	holder, next := newLocks(t, b), newLocks(t, b)
	const dead = "dead000000000000"
	first, reader := acquire(t, holder, "line"), acquire(t, holder, "document", core.WithShared())
	left := []*core.Op{
		{Action: core.Arrive, Hold: core.Hold{Key: "line", Fair: true}, Ticket: dead + "0123456789abcdef", Waiter: dead},
		{Action: core.Try, Hold: core.Hold{Key: "document", TTL: time.Minute}, Owner: strings.Repeat("0", 32), Waiter: dead},
	}
	b.Do(t.Context(), left)
	if left[0].Verdict != core.OK || left[1].Verdict != core.Refused {
		t.Fatalf("verdicts %d, %d, errors %v, %v", left[0].Verdict, left[1].Verdict, left[0].Err, left[1].Err)
	}
	if _, err := next.Acquire(t.Context(), "document", core.WithShared()); !errors.Is(err, core.ErrNotAcquired) {
		t.Fatalf("a reader past a waiting writer: %v", err)
	}
	server.SetClock("-1h")
	release(t, first)
	for key, opt := range map[string]core.Option{"line": core.WithFair(), "document": core.WithShared()} {
		began := time.Now()
		release(t, acquire(t, next, key, opt, core.WithWait(20*time.Second)))
		t.Logf("%q came after %v", key, time.Since(began))
	}
	release(t, reader)
}

// Every way out of the line leaves it.
func TestFairWaitersLeaveTheLine(t *testing.T) {
	rdb := redistest.Start(t).Client()
	holder := newLocks(t, core.Redis(rdb))
	inLine := func() int64 { return rdb.ZCount(t.Context(), "latchkit~line:{k}", "1e15", "+inf").Val() }
	exits := map[string]func(l *core.Locks, cancel func()){
		"wait spent": nil,
		"cancelled":  func(_ *core.Locks, cancel func()) { cancel() },
		"closed":     func(l *core.Locks, _ func()) { _ = l.Close(context.Background()) },
	}
	for name, exit := range exits {
		t.Run(name, func(t *testing.T) {
			lease := acquire(t, holder, "k")
			waiter, err := core.New(core.Redis(rdb))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			wait := core.Forever
			if exit == nil {
				wait = 300 * time.Millisecond
			}
			gone := make(chan error, 3)
			for range 3 { // one leads, two stand behind it
				go func() {
					_, err := waiter.Acquire(ctx, "k", core.WithFair(), core.WithWait(wait))
					gone <- err
				}()
			}
			eventually(t, 5*time.Second, "three stand in line", func() bool { return inLine() == 3 || exit == nil && len(gone) > 0 })
			if exit != nil {
				exit(waiter, cancel)
			}
			for range 3 {
				if err := <-gone; err == nil {
					t.Error("acquired while it is held")
				}
			}
			eventually(t, time.Second, "nobody stands in line", func() bool { return inLine() == 0 })
			if n := rdb.ZCard(t.Context(), "latchkit~wait:{k}").Val(); n != 0 {
				t.Errorf("%d engines are left among the waiters", n)
			}
			release(t, lease)
			_ = waiter.Close(context.Background())
		})
	}
}

// A line that the server has forgotten is there again with the next heartbeat, in order.
func TestFairLineSurvivesAServerWithoutMemory(t *testing.T) {
	rdb := redistest.Start(t).Client()
	holder, waiter := newLocks(t, core.Redis(rdb)), newLocks(t, core.Redis(rdb))
	lease := acquire(t, holder, "k")
	order := make(chan int, 4)
	for i := range 4 {
		go func() {
			lease, err := waiter.Acquire(context.Background(), "k", core.WithFair(), core.WithWait(time.Minute))
			if err != nil {
				t.Error(err)
			}
			order <- i
			release(t, lease)
		}()
		eventually(t, 5*time.Second, "it is queued", func() bool { return waiter.Queued("k") == i+1 })
	}
	inLine := func() bool { return rdb.ZCount(t.Context(), "latchkit~line:{k}", "1e15", "+inf").Val() == 4 }
	eventually(t, 5*time.Second, "four stand in line", inLine)
	if err := rdb.Del(t.Context(), "latchkit~line:{k}", "latchkit~wait:{k}").Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, core.WaiterTTL, "they stand in line again", inLine)
	release(t, lease)
	for want := range 4 {
		if got := <-order; got != want {
			t.Fatalf("number %d was served as number %d", got, want)
		}
	}
}

// Whoever holds, waits, takes part or has completed: what stands in Redis for it ends by itself.
func TestEveryCompanionHasATTL(t *testing.T) {
	rdb := redistest.Start(t).Client()
	b := core.Redis(rdb)
	kinds := map[string][]core.Option{"exclusive": nil, "shared": {core.WithShared()}, "limited": {core.WithLimit(2)},
		"fair": {core.WithFair()}}
	for name, opts := range kinds {
		one, two := newLocks(t, b), newLocks(t, b)
		lease := acquire(t, one, name, opts...)
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		waiters := 0
		for other, theirs := range kinds {
			if other == "exclusive" || other == name && name != "fair" { // another script's, or it would be let in
				continue
			}
			waiters++
			locks := newLocks(t, b)
			waiting.Go(func() { _, _ = locks.Acquire(ctx, name, append(theirs, core.WithWait(core.Forever))...) })
		}
		eventually(t, 5*time.Second, "all wait", func() bool {
			info, err := one.Inspect(t.Context(), name)
			return err == nil && info.Waiters == waiters
		})
		noCompanionWithoutTTL(t, rdb)
		if name != "limited" { // a permit is for one
			part, err := two.Acquire(called(t, export(t, lease)), name, opts...)
			if err != nil {
				t.Fatal(err)
			}
			noCompanionWithoutTTL(t, rdb)
			defer func() { _ = part.Release(context.Background()) }()
		}
		if err := lease.ReleaseAfter(t.Context(), time.Minute); err != nil {
			t.Error(err)
		}
		noCompanionWithoutTTL(t, rdb)
		cancel()
		waiting.Wait()
		noCompanionWithoutTTL(t, rdb)
	}
	if n := rdb.DBSize(t.Context()).Val(); n < 8 {
		t.Errorf("%d keys: too few to judge", n)
	}
}

// L43: what is no lock is left as it is, by every kind.
func TestL43ConflictOfEveryKind(t *testing.T) {
	rdb := redistest.Start(t).Client()
	locks := newLocks(t, core.Redis(rdb))
	things := map[string]func(){
		"a list":               func() { rdb.RPush(t.Context(), "k", "x") },
		"a string without TTL": func() { rdb.Set(t.Context(), "k", "x", 0) },
		"a set with a TTL":     func() { rdb.SAdd(t.Context(), "k", "x"); rdb.Expire(t.Context(), "k", time.Minute) },
		"a sorted set with a TTL": func() {
			rdb.ZAdd(t.Context(), "k", redis.Z{Score: 1, Member: "x"})
			rdb.Expire(t.Context(), "k", time.Minute)
		},
	}
	kinds := map[string][]core.Option{"shared": {core.WithShared()}, "limited": {core.WithLimit(2)}, "fair": {core.WithFair()}}
	for thing, put := range things {
		put()
		before := rdb.Dump(t.Context(), "k").Val()
		for kind, opts := range kinds {
			_, err := locks.Acquire(t.Context(), "k", append(opts, core.WithWait(time.Second))...)
			if !errors.Is(err, core.ErrConflict) {
				t.Errorf("%s for %s: %v", thing, kind, err)
			}
		}
		if _, err := locks.Inspect(t.Context(), "k"); !errors.Is(err, core.ErrConflict) {
			t.Errorf("inspect of %s: %v", thing, err)
		}
		wantErr(t, locks.ForceRelease(t.Context(), "k"), core.ErrConflict)
		if after := rdb.Dump(t.Context(), "k").Val(); after != before {
			t.Errorf("%s has changed", thing)
		}
		rdb.Del(t.Context(), "k")
	}
	// The lock of another library counts as held, and an operator may take it away.
	rdb.Set(t.Context(), "k", "theirs", time.Minute)
	for kind, opts := range kinds {
		var busy *core.NotAcquiredError
		if _, err := locks.Acquire(t.Context(), "k", opts...); !errors.As(err, &busy) || busy.RetryAfter < 50*time.Second {
			t.Errorf("%s beside another library's lock: %v", kind, err)
		}
	}
	info, err := locks.Inspect(t.Context(), "k")
	if err != nil || !info.Held || !info.Foreign || info.Holders[0].Remaining < 50*time.Second {
		t.Errorf("inspect of another library's lock: %+v, %v", info, err)
	}
	if err := locks.ForceRelease(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	release(t, acquire(t, locks, "k", core.WithShared()))
}

// Shared and limited holders keep out those who take the key with SET NX, for as long as one of them lives.
func TestHoldersKeepOutPlainCommands(t *testing.T) {
	rdb := redistest.Start(t).Client()
	locks := newLocks(t, core.Redis(rdb))
	long := acquire(t, locks, "k", core.WithShared(), core.WithTTL(10*time.Second))
	short := acquire(t, locks, "k", core.WithShared(), core.WithTTL(5*time.Second))
	setNX := func() bool { return rdb.SetNX(t.Context(), "k", "theirs", time.Minute).Val() }
	if setNX() {
		t.Fatal("taken beside readers")
	}
	release(t, long)
	if ttl := rdb.PTTL(t.Context(), "k").Val(); ttl <= 0 || ttl > 5*time.Second {
		t.Errorf("the key lives for %v, its last reader for 5 s", ttl)
	}
	release(t, short)
	if !setNX() {
		t.Error("not free with the last reader")
	}
}

func TestLeasesTellsWhatIsHeld(t *testing.T) {
	locks := newLocks(t, core.Local(), core.WithPrefix("p:"))
	if n := len(locks.Leases()); n != 0 {
		t.Errorf("%d leases of an idle engine", n)
	}
	first := acquire(t, locks, "a", core.WithLabel("one"), core.WithTTL(10*time.Second))
	inner, err := locks.Acquire(first.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	second := acquire(t, locks, "b", core.WithShared(), core.WithoutRenewal())
	held := locks.Leases()
	if len(held) != 2 || held[0].Key != "a" || held[1].Key != "b" {
		t.Fatalf("leases: %+v", held)
	}
	if h := held[0]; h.Label != "one" || h.Kind != core.Exclusive || h.Fence != first.Fence() || h.Count != 2 || !h.Renewed ||
		h.Degraded || h.Age() < 0 || h.Age() > time.Minute || h.Remaining <= 0 || h.Remaining > 10*time.Second {
		t.Errorf("the first is %+v", h)
	}
	if h := held[1]; h.Kind != core.Shared || h.Count != 1 || h.Renewed {
		t.Errorf("the second is %+v", h)
	}
	release(t, inner)
	release(t, first)
	release(t, second)
	if n := len(locks.Leases()); n != 0 {
		t.Errorf("%d leases after all were released", n)
	}
}

func TestWaitingTellsWhoWaitsHere(t *testing.T) {
	locks := newLocks(t, core.Local(), core.WithPrefix("p:"))
	first := acquire(t, locks, "a")
	before := time.Now()
	var waiters sync.WaitGroup
	for range 3 {
		waiters.Go(func() {
			if lease, err := locks.Acquire(t.Context(), "a", core.WithWait(core.Forever)); err != nil || lease.Release(t.Context()) != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, 5*time.Second, "three wait", func() bool {
		all := locks.Waiting()
		return len(all) == 1 && all[0].Key == "a" && all[0].Count == 3
	})
	if w := locks.Waiting()[0]; w.Since.Before(before) || w.Since.After(time.Now()) {
		t.Errorf("since %v", w.Since)
	}
	release(t, first)
	waiters.Wait()
	if all := locks.Waiting(); len(all) != 0 {
		t.Errorf("all were served, and wait: %+v", all)
	}
}

// One who waits for a holder elsewhere is told of too.
func TestWaitingTellsWhoWaitsForOthers(t *testing.T) {
	b := core.Local()
	one, two := newLocks(t, b), newLocks(t, b)
	first := acquire(t, one, "a")
	got := make(chan error, 1)
	go func() {
		lease, err := two.Acquire(t.Context(), "a", core.WithWait(time.Minute))
		got <- errors.Join(err, lease.Release(t.Context()))
	}()
	eventually(t, 5*time.Second, "it waits", func() bool {
		all := two.Waiting()
		return len(all) == 1 && all[0].Count == 1
	})
	release(t, first)
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestLossesAreKept(t *testing.T) {
	locks := newLocks(t, core.Local(), core.WithLabel("here"))
	release(t, acquire(t, locks, "released"))
	var fence int64
	for i := range 101 {
		lease := acquire(t, locks, fmt.Sprint(i))
		fence = lease.Fence()
		if err := locks.ForceRelease(t.Context(), lease.Key()); err != nil {
			t.Fatal(err)
		}
	}
	all := locks.Losses()
	if len(all) != 100 || all[0].Key != "100" || all[99].Key != "1" {
		t.Fatalf("%d losses: %+v", len(all), all)
	}
	if l := all[0]; l.Reason != "forced" || l.Label != "here" || l.Fence != fence || l.At.Before(l.Since) || l.Age() < 0 {
		t.Errorf("%+v", l)
	}
}

// Operations of several kinds share a batch, and each is answered for itself, in order.
func TestKindsShareABatch(t *testing.T) {
	oneStore(t, func(t *testing.T, b core.Backend) {
		owner := func(n int) string { return strings.Repeat(fmt.Sprint(n), 32) }
		op := func(a core.Action, key string, kind core.Kind, n int) *core.Op {
			return &core.Op{Action: a, Owner: owner(n), Fences: 1,
				Hold: core.Hold{Key: key, Kind: kind, Limit: 1, TTL: 10 * time.Second}}
		}
		ops := []*core.Op{
			op(core.Try, "a", core.Exclusive, 1), op(core.Try, "a", core.Shared, 2), op(core.Release, "a", core.Exclusive, 1),
			op(core.Try, "a", core.Shared, 3), op(core.Try, "a", core.Shared, 4), op(core.Try, "a", core.Exclusive, 5),
			op(core.Extend, "a", core.Shared, 4), op(core.Release, "a", core.Shared, 2),
			op(core.Try, "b", core.Limited, 6), op(core.Try, "b", core.Limited, 7), op(core.Try, "b", core.Limited, 6),
			op(core.Refill, "b", core.Limited, 6),
		}
		want := []core.Verdict{core.Granted, core.Refused, core.OK, core.Granted, core.Granted, core.Refused, core.OK,
			core.Absent, core.Granted, core.Refused, core.Granted, core.OK}
		if _, remote := b.(core.Prober); !remote {
			// Where nothing is sent twice, nothing need find itself.
			ops, want = append(ops[:10], ops[11]), append(want[:10], want[11])
		}
		b.Do(t.Context(), ops)
		for i, op := range ops {
			if op.Err != nil || op.Verdict != want[i] {
				t.Errorf("%d, %v of %q: verdict %d, error %v; want %d", i, op.Action, op.Key, op.Verdict, op.Err, want[i])
			}
		}
		if ops[3].Fence >= ops[4].Fence {
			t.Errorf("fences %d, %d", ops[3].Fence, ops[4].Fence)
		}
	})
}
