package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// Readers and writers on nodes that stop, forget and are late.

// readers returns how many readers of key each of the nodes has, those included that have died.
func (ns nodes) readers(t testing.TB, key string) (counts []int) {
	t.Helper()
	for _, s := range ns {
		members, err := s.Client().ZRange(t.Context(), key, 0, -1).Result()
		if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			t.Fatal(err)
		}
		n := 0
		for _, m := range members {
			if strings.HasPrefix(m, "s") {
				n++
			}
		}
		counts = append(counts, n)
	}
	return counts
}

// allRead waits until each node has n readers of key.
func (ns nodes) allRead(t testing.TB, key string, n int) {
	t.Helper()
	eventually(t, 15*time.Second, fmt.Sprintf("every node has %d readers", n), func() bool {
		for _, count := range ns.readers(t, key) {
			if count != n {
				return false
			}
		}
		return true
	})
}

// readBy takes the key k as a reader, in a Backend that is used by hand.
func readBy(t testing.TB, b core.Backend, digit string, ttl time.Duration) *core.Op {
	t.Helper()
	return tryHold(t, b, core.Hold{Key: "k", Kind: core.Shared, TTL: ttl}, strings.Repeat(digit, 32))
}

// answers waits until node i of the Backend answers, once what it was to be asked before is too old.
func answers(t testing.TB, b core.Backend, i int) {
	t.Helper()
	eventually(t, 5*time.Second, "the node answers again", func() bool {
		info, err := b.(core.Inspector).Inspect(t.Context(), "other")
		return err == nil && info.Nodes[i].Err == nil
	})
}

func TestRedLockReaders(t *testing.T) {
	t.Parallel()
	for _, size := range []int{3, 5} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			ns := startNodes(t, size)
			ns.enrol(t)
			one, two := newLocks(t, ns.redlock()), newLocks(t, ns.redlock())
			for _, stop := range []bool{false, true} {
				if stop {
					ns[0].Pause()
				}
				first := acquire(t, one, "k", core.WithShared())
				second := acquire(t, two, "k", core.WithShared())
				if second.Fence() <= first.Fence() {
					t.Errorf("fence %d after %d", second.Fence(), first.Fence())
				}
				for _, l := range []*core.Locks{one, two} {
					_, err := l.Acquire(t.Context(), "k")
					var busy *core.NotAcquiredError
					if !errors.As(err, &busy) || busy.RetryAfter <= 0 || busy.Completed {
						t.Errorf("a writer beside readers: %+v, %v", busy, err)
					}
				}
				release(t, first)
				_, err := one.Acquire(t.Context(), "k")
				wantErr(t, err, core.ErrNotAcquired)
				release(t, second)
				writer := acquire(t, one, "k", core.WithWait(5*time.Second))
				_, err = two.Acquire(t.Context(), "k", core.WithShared())
				wantErr(t, err, core.ErrNotAcquired)
				release(t, writer)
				if stop {
					ns[0].Resume()
				}
			}
			eventually(t, 5*time.Second, "nothing stays", func() bool {
				n := ns.holders(t, "k")
				return n == 0 && ns.holders(t, "latchkit~hold:{k}") == 0
			})
		})
	}
}

// Nodes are restarted one after another, without memory: readers go on, are filled in, and keep the writer out throughout.
func TestRedLockReadersSurviveRestarts(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3)
	const ttl = 2 * time.Second
	engine := func() *core.Locks { return newLocks(t, ns.redlock(core.WithMaxTTL(ttl)), core.WithTTL(ttl)) }
	one, two, rival := engine(), engine(), engine()
	readers := []*core.Lease{acquire(t, one, "k", core.WithShared()), acquire(t, two, "k", core.WithShared())}
	kept := func() {
		t.Helper()
		for _, lease := range readers {
			outlives(t, lease, 0)
		}
		if _, err := rival.Acquire(t.Context(), "k"); err == nil {
			t.Fatal("a writer beside readers")
		}
	}
	for _, s := range ns {
		s.RestartEmpty()
		kept()
		ns.allRead(t, "k", 2)
		for end := time.Now().Add(ttl); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			kept() // from the next round on the node counts
		}
	}
	for _, lease := range readers {
		release(t, lease)
	}
	release(t, acquire(t, rival, "k", core.WithWait(10*time.Second)))
}

// A reader is filled in beside other readers, and beside the mark of one that has completed; never beside a writer.
func TestRedLockReaderIsFilledIn(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3)
	ns.enrol(t)
	proxy, rdb := ns[0].Proxy(t), ns[0].Client()
	b := core.RedLock([]redis.UniversalClient{proxy.NewClient(nil), ns[1].Client(), ns[2].Client()})
	closeBackend(t, b)
	tryFor(t, b, "warm", 10*time.Second)
	proxy.Cut()
	reader := readBy(t, b, "1", 30*time.Second)
	time.Sleep(core.DefaultNodeTimeout + 20*time.Millisecond) // what waits for node 0 is too old to be sent by now
	proxy.Restore()
	answers(t, b, 0)
	extend := func() {
		t.Helper()
		if op := carry(t, b, core.Extend, reader); op.Verdict != core.OK {
			t.Fatalf("extend: %v, %v", op.Verdict, op.Err)
		}
		answers(t, b, 0) // each node's queue is in order
	}
	const writer = "feedfeedfeedfeedfeedfeedfeedfeed:1:2.3:writer"
	must(t, rdb.Set(t.Context(), "k", writer, time.Minute).Err())
	extend()
	if value, err := rdb.Get(t.Context(), "k").Result(); value != writer {
		t.Fatalf("%q, %v stands where the writer was", value, err)
	}
	must(t, rdb.Set(t.Context(), "k", "completed:1.2:mark", time.Minute).Err())
	extend()
	if members := rdb.ZRange(t.Context(), "k", 0, -1).Val(); len(members) != 2 || members[1] != "c" {
		t.Errorf("beside a mark: %q", members)
	}
	if ttl := rdb.PTTL(t.Context(), "k").Val(); ttl < 50*time.Second {
		t.Errorf("the mark has %v left of a minute", ttl)
	}
	carry(t, b, core.Release, reader)
	eventually(t, 5*time.Second, "the mark stays", func() bool { return rdb.Get(t.Context(), "k").Val() == "completed:1.2:mark" })
}

// A reader that was deleted at a majority is lost; those beside it are not.
func TestRedLockDeletedReaderIsLost(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 5)
	const ttl = time.Second
	locks := newLocks(t, ns.redlock(), core.WithTTL(ttl))
	lease := acquire(t, locks, "k", core.WithShared())
	ns.allRead(t, "k", 1)
	member := ns[0].Client().ZRange(t.Context(), "k", 0, 0).Val()[0]
	other := acquire(t, newLocks(t, ns.redlock(), core.WithTTL(ttl)), "k", core.WithShared())
	ns.allRead(t, "k", 2)
	for _, s := range ns[:2] {
		must(t, s.Client().ZRem(t.Context(), "k", member).Err())
	}
	outlives(t, lease, 2*ttl) // by eviction, say: neither a loss nor repaired
	if got := fmt.Sprint(ns.readers(t, "k")); got != "[1 1 2 2 2]" {
		t.Errorf("readers by node: %s", got)
	}
	must(t, ns[2].Client().ZRem(t.Context(), "k", member).Err())
	ends(t, lease, ttl)
	wantErr(t, context.Cause(lease.Context()), core.ErrLost)
	outlives(t, other, 2*ttl)
	release(t, other)
}

// A force takes all readers, and none comes back.
func TestRedLockForceTakesAllReaders(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 5)
	const ttl = time.Second
	one, two := newLocks(t, ns.redlock(), core.WithTTL(ttl)), newLocks(t, ns.redlock(), core.WithTTL(ttl))
	operator := newLocks(t, ns.redlock())
	readers := []*core.Lease{acquire(t, one, "k", core.WithShared()), acquire(t, two, "k", core.WithShared())}
	ns[4].RestartEmpty()
	must(t, operator.ForceRelease(t.Context(), "k"))
	for _, lease := range readers {
		ends(t, lease, ttl)
		wantErr(t, context.Cause(lease.Context()), core.ErrLost)
	}
	for end := time.Now().Add(ttl); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if n := ns[:4].holders(t, "k"); n != 0 {
			t.Fatalf("it came back on %d nodes", n)
		}
	}
}

func TestRedLockInspectsReaders(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3)
	ns.enrol(t)
	one, two := newLocks(t, ns.redlock(), core.WithLabel("one")), newLocks(t, ns.redlock(), core.WithLabel("two"))
	operator := newLocks(t, ns.redlock())
	first := acquire(t, one, "k", core.WithShared(), core.WithTTL(40*time.Second))
	second := acquire(t, two, "k", core.WithShared(), core.WithTTL(20*time.Second))
	ns.allRead(t, "k", 2)
	info, err := one.Inspect(t.Context(), "k")
	if err != nil || len(info.Holders) != 2 {
		t.Fatalf("%+v, %v", info, err)
	}
	for _, h := range info.Holders { // a third node may say another fence, and counts for as much as another when there are two
		lease := map[string]*core.Lease{"one": first, "two": second}[h.Label]
		if lease == nil || h.Fence != lease.Fence() || h.Here != (lease == first) || h.Remaining <= 0 || time.Since(h.Since).Abs() > time.Minute {
			t.Errorf("%+v", h)
		}
	}
	must(t, ns[0].Client().Del(t.Context(), "k").Err()) // a majority tells of them still
	info, err = one.Inspect(t.Context(), "k")
	if err != nil || !info.Held || info.Kind != core.Shared || info.Completed || len(info.Holders) != 2 ||
		info.Nodes[0].Holds || !info.Nodes[1].Holds || info.Waiters != 0 {
		t.Fatalf("%+v, %v", info, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waits := make(chan error)
	for _, kind := range [][]core.Option{nil, {core.WithShared()}} {
		l := newLocks(t, ns.redlock())
		go func() {
			_, err := l.Acquire(ctx, "k", append(kind, core.WithWait(core.Forever))...)
			waits <- err
		}()
		if kind == nil { // it keeps the other one out
			eventually(t, 10*time.Second, "the writer waits", func() bool {
				info, err := one.Inspect(t.Context(), "k")
				return err == nil && info.Waiters == 1
			})
		}
	}
	eventually(t, 10*time.Second, "both are seen to wait, one for each kind", func() bool {
		info, err := one.Inspect(t.Context(), "k")
		return err == nil && info.Waiters == 2
	})
	cancel()
	wantErr(t, <-waits, context.Canceled)
	wantErr(t, <-waits, context.Canceled)
	must(t, first.ReleaseAfter(t.Context(), time.Minute))
	info, err = operator.Inspect(t.Context(), "k")
	if err != nil || !info.Held || info.Completed || len(info.Holders) != 1 || info.Holders[0].Label != "two" {
		t.Errorf("beside a mark: %+v, %v", info, err)
	}
	release(t, second)
	info, err = operator.Inspect(t.Context(), "k")
	if err != nil || info.Held || !info.Completed || len(info.Holders) != 1 {
		t.Errorf("completed: %+v, %v", info, err)
	}
}

// A reader that is dead keeps nobody from hearing that another has completed, and is not told of.
func TestRedLockDeadReaderIsTidiedUp(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3)
	ns.enrol(t)
	b := ns.redlock()
	closeBackend(t, b)
	locks := newLocks(t, ns.redlock())
	readBy(t, b, "1", 300*time.Millisecond) // never heard of again
	must(t, acquire(t, locks, "k", core.WithShared()).ReleaseAfter(t.Context(), 20*time.Second))
	eventually(t, 5*time.Second, "a writer hears that it is completed", func() bool {
		_, err := locks.Acquire(t.Context(), "k")
		var busy *core.NotAcquiredError
		return errors.As(err, &busy) && busy.Completed && busy.RetryAfter > 15*time.Second
	})
	must(t, locks.ForceRelease(t.Context(), "k"))
	readBy(t, b, "2", 300*time.Millisecond)
	release(t, acquire(t, locks, "k", core.WithShared()))
	release(t, acquire(t, locks, "k", core.WithWait(5*time.Second)))
}

// A writer that waits keeps new readers out with a node away as well, and is let in when the last reader has gone.
func TestRedLockWaitingWriterKeepsReadersOut(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3)
	ns.enrol(t)
	one, two, three := newLocks(t, ns.redlock()), newLocks(t, ns.redlock()), newLocks(t, ns.redlock())
	ns[1].Pause()
	reader := acquire(t, one, "k", core.WithShared())
	got := make(chan *core.Lease, 1)
	go func() {
		writer, err := two.Acquire(t.Context(), "k", core.WithWait(20*time.Second))
		if err != nil {
			t.Error(err)
		}
		got <- writer
	}()
	eventually(t, 10*time.Second, "the writer waits", func() bool {
		info, err := one.Inspect(t.Context(), "k")
		return err == nil && info.Waiters == 1
	})
	for range 10 {
		_, err := three.Acquire(t.Context(), "k", core.WithShared(), core.WithWait(10*time.Millisecond))
		wantErr(t, err, core.ErrNotAcquired)
	}
	release(t, reader)
	writer := <-got
	ns[1].Resume()
	release(t, writer)
	release(t, acquire(t, three, "k", core.WithShared(), core.WithWait(10*time.Second)))
}

// Two engines over one Backend, of which one is to keep the other's readers out: their operations do not go in one call,
// of which a node would take one for the other's own.
func TestRedLockReaderOfAnotherEngineInOneBatch(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3)
	ns.enrol(t)
	b := ns.redlock()
	closeBackend(t, b)
	readBy(t, b, "1", 30*time.Second)
	writer := &core.Op{Action: core.Try, Hold: core.Hold{Key: "k", TTL: time.Minute}, Owner: strings.Repeat("2", 32), Waiter: "one", Fences: 1}
	reader := &core.Op{Action: core.Try, Hold: core.Hold{Key: "k", Kind: core.Shared, TTL: time.Minute}, Owner: strings.Repeat("3", 32),
		Waiter: "another", Fences: 1}
	b.Do(t.Context(), []*core.Op{writer, reader})
	if writer.Verdict != core.Refused || reader.Verdict != core.Refused {
		t.Errorf("writer %v, %v; reader behind it %v, %v", writer.Verdict, writer.Err, reader.Verdict, reader.Err)
	}
	if n := ns[0].Client().ZCard(t.Context(), "latchkit~wait:{k}").Val(); n != 2 {
		t.Errorf("%d engines wait, want 2", n)
	}
}

// Readers that wait behind a writer are in no other reader's way once it has gone.
func TestRedLockWaitingReaderBarsNobody(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3)
	ns.enrol(t)
	b := ns.redlock()
	closeBackend(t, b)
	writer := tryFor(t, b, "k", 30*time.Second)
	eventually(t, 5*time.Second, "all nodes have it", func() bool { return ns.holders(t, "k") == 3 })
	waiting := &core.Op{Action: core.Try, Hold: core.Hold{Key: "k", Kind: core.Shared, TTL: time.Minute}, Owner: strings.Repeat("2", 32),
		Waiter: "one", Fences: 1}
	b.Do(t.Context(), []*core.Op{waiting})
	if waiting.Verdict != core.Refused {
		t.Fatalf("%v, %v", waiting.Verdict, waiting.Err)
	}
	eventually(t, 5*time.Second, "it waits everywhere", func() bool { return ns.holders(t, "latchkit~wait:{k}") == 3 })
	if op := carry(t, b, core.Release, writer); op.Verdict != core.OK || !op.Outside {
		t.Errorf("the writer's release: %v, %v, outside %v", op.Verdict, op.Err, op.Outside)
	}
	readBy(t, b, "3", 30*time.Second)
}

// Those who died while they waited are forgotten with the next who waits, of whichever kind: where somebody always does, a
// node would collect them.
func TestRedLockDeadWaitersAreForgotten(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3)
	const companion = "latchkit~wait:{k}"
	lease := acquire(t, newLocks(t, ns.redlock()), "k")
	for i, options := range [][]core.Option{nil, {core.WithShared()}} {
		past := float64(time.Now().Add(-time.Minute).UnixMilli())
		for _, s := range ns {
			must(t, s.Client().ZAdd(t.Context(), companion, redis.Z{Score: past, Member: "writer"}, redis.Z{Score: 2e15 + past, Member: "reader"}).Err())
		}
		ctx, cancel := context.WithCancel(t.Context())
		locks, waits := newLocks(t, ns.redlock()), make(chan error)
		go func() {
			_, err := locks.Acquire(ctx, "k", append(options, core.WithWait(core.Forever))...)
			waits <- err
		}()
		for _, s := range ns {
			eventually(t, 5*time.Second, fmt.Sprintf("only number %d waits", i), func() bool {
				waiters := s.Client().ZRange(t.Context(), companion, 0, -1).Val()
				return len(waiters) == 1 && waiters[0] != "writer" && waiters[0] != "reader"
			})
		}
		cancel()
		wantErr(t, <-waits, context.Canceled)
	}
	release(t, lease)
}

// A writer that a majority has let in waits nowhere any more, not at the nodes that had refused it either: readers would be
// kept out there when it has left.
func TestRedLockWriterInsideDoesNotWait(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3)
	locks := newLocks(t, ns.redlock())
	for _, s := range ns {
		must(t, s.Client().Set(t.Context(), "k", "somebody else's token", time.Minute).Err())
	}
	got := make(chan *core.Lease)
	go func() { got <- acquire(t, locks, "k", core.WithWait(20*time.Second)) }()
	waiters := func() (n int64) {
		for _, s := range ns {
			n += s.Client().ZCard(t.Context(), "latchkit~wait:{k}").Val()
		}
		return n
	}
	eventually(t, 10*time.Second, "it waits everywhere", func() bool { return waiters() == 3 })
	for _, s := range ns[1:] {
		must(t, s.Client().Del(t.Context(), "k").Err())
	}
	writer := <-got
	eventually(t, time.Second, "it waits nowhere", func() bool { return waiters() == 0 })
	release(t, writer)
}

// What a reader took beside a writer's majority is given back at once.
func TestRedLockReaderGivesBackWhatItTook(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 5)
	locks := newLocks(t, ns.redlock())
	for _, s := range ns[:3] {
		must(t, s.Client().Set(t.Context(), "k", "somebody else's token", time.Minute).Err())
	}
	for range 5 {
		_, err := locks.Acquire(t.Context(), "k", core.WithShared())
		wantErr(t, err, core.ErrNotAcquired)
	}
	eventually(t, time.Second, "what was taken is freed", func() bool { return ns.holders(t, "k") == 3 })
}

// Two readers that come together, of whom one takes the greatest of the answers that differ, and on just that one the
// nodes of the other agree.
func TestRedLockReadersShareNoFence(t *testing.T) {
	t.Parallel()
	for range 5 {
		if readersCrossed(t) {
			return
		}
	}
	t.Fatal("the first was through before the second came, five times")
}

// readersCrossed is such a pair, unless a busy machine has kept the second for so long that they are none.
func readersCrossed(t *testing.T) bool {
	ns := startNodes(t, 3)
	ns.enrol(t)
	late := [2]*redistest.Proxy{ns[0].Proxy(t), ns[1].Proxy(t)}
	cut := [2]*redistest.Proxy{ns[2].Proxy(t), ns[0].Proxy(t)}
	slow := core.RedLock([]redis.UniversalClient{late[0].NewClient(nil), late[1].NewClient(nil), cut[0].NewClient(nil)},
		core.WithNodeTimeout(5*time.Second))
	fast := core.RedLock([]redis.UniversalClient{cut[1].NewClient(nil), ns[1].Client(), ns[2].Client()}, core.WithNodeTimeout(5*time.Second))
	closeBackend(t, slow)
	closeBackend(t, fast)
	tryFor(t, slow, "warm", 10*time.Second)
	tryFor(t, fast, "warm as well", 10*time.Second)
	// Node 1 will answer the first with 16 less than the others, and so the second with the same.
	last := time.Now().Add(time.Hour).UnixMicro()/16*16 + 15
	for i, counter := range []int64{last, last - 16, last} {
		must(t, ns[i].Client().Set(t.Context(), "latchkit~fence", counter, 0).Err())
	}
	for i := range 2 {
		late[i].Latency(time.Second)
		cut[i].Cut()
	}
	first := make(chan *core.Op, 1)
	go func() {
		defer close(first) // should it fail
		first <- readBy(t, slow, "1", 30*time.Second)
	}()
	eventually(t, 10*time.Second, "both nodes have the first", func() bool { return fmt.Sprint(ns.readers(t, "k")) == "[1 1 0]" })
	b := readBy(t, fast, "2", 30*time.Second)
	a := <-first
	if a == nil {
		t.FailNow()
	}
	for i := range 2 {
		late[i].Restore()
		cut[i].Restore()
	}
	if b.Fence > last+16 {
		return false
	}
	if a.Fence != last+16-15+1 || b.Fence != last+16-15 {
		t.Errorf("fences %d and %d, both of the block that ends with %d", a.Fence, b.Fence, last+16)
	}
	for i, want := range []int64{a.Fence, b.Fence} {
		text := ns[1].Client().HGet(t.Context(), "latchkit~hold:{k}", strings.Repeat(fmt.Sprint(i+1), 32)).Val()
		if !strings.HasPrefix(text, fmt.Sprintf(":%d:", want)) {
			t.Errorf("the node says %q of the reader with fence %d", text, want)
		}
	}
	return true
}
