package core_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// Operations that come later than they should.

// carry does one operation, whose hold is that of try.
func carry(t testing.TB, b core.Backend, action core.Action, try *core.Op) *core.Op {
	t.Helper()
	op := &core.Op{Action: action, Hold: try.Hold, Owner: try.Owner, Home: try.Home, Fences: 1}
	b.Do(t.Context(), []*core.Op{op})
	return op
}

// tryFor takes key in a Backend that is used by hand.
func tryFor(t testing.TB, b core.Backend, key string, ttl time.Duration) *core.Op {
	t.Helper()
	return tryHold(t, b, core.Hold{Key: key, TTL: ttl}, strings.Repeat("0123456789abcdef", 2))
}

func tryHold(t testing.TB, b core.Backend, h core.Hold, owner string) *core.Op {
	t.Helper()
	op := &core.Op{Action: core.Try, Hold: h, Owner: owner, Fences: 1}
	b.Do(t.Context(), []*core.Op{op})
	if op.Err != nil || op.Verdict != core.Granted {
		t.Fatalf("%q: %v, %v", h.Key, op.Verdict, op.Err)
	}
	return op
}

func closeBackend(t testing.TB, b core.Backend) {
	t.Cleanup(func() {
		if err := b.(core.Closer).Close(); err != nil {
			t.Error(err)
		}
	})
}

// L2: a renewal that was made ready before a release, and goes out after it, must not fill in what was released.
func TestRedLockExtendAfterReleaseFillsNothingIn(t *testing.T) {
	ns := startNodes(t, 3)
	b := ns.redlock()
	closeBackend(t, b)
	hold := tryFor(t, b, "k", time.Minute)
	if op := carry(t, b, core.Release, hold); op.Verdict != core.OK {
		t.Fatalf("%v, %v", op.Verdict, op.Err)
	}
	if op := carry(t, b, core.Extend, hold); op.Verdict == core.OK {
		t.Error("what was released is extended")
	}
	eventually(t, 5*time.Second, "all nodes have answered, one call after the other", func() bool {
		info, err := b.(core.Inspector).Inspect(t.Context(), "k")
		return err == nil && !slices.ContainsFunc(info.Nodes, func(n core.NodeInfo) bool { return n.Err != nil })
	})
	if n := ns.holders(t, "k"); n != 0 {
		t.Errorf("it is back on %d nodes", n)
	}
}

// A node's clock that has run ahead of what was last seen of it, in an hour without a word or by a step, costs nobody a
// lock: what came too late by that clock is sent again by the one that the answer tells of. The Tracer hears of the step,
// however lately it was told of the clock.
func TestRedLockClocksThatStep(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3, redistest.WithFaketime("+0"))
	var offsets clockTracer
	locks := newLocks(t, ns.redlock(), core.WithTracer(&offsets))
	release(t, acquire(t, locks, "k"))
	var last int64
	for _, step := range []string{"+10m", "-10m", "+1h"} {
		ns.each(func(s *redistest.Server) { s.SetClock(step) })
		lease := acquire(t, locks, "k")
		want, err := time.ParseDuration(step)
		must(t, err)
		eventually(t, 5*time.Second, "the Tracer hears of "+step, func() bool {
			return (offsets.of(ns[0].Addr()) - want).Abs() < 5*time.Second
		})
		if lease.Fence() <= last {
			t.Errorf("%s: fence %d after %d", step, lease.Fence(), last)
		}
		last = lease.Fence()
		release(t, lease)
		ns.each(func(s *redistest.Server) { s.SetClock("+2h") })
		if err := locks.ForceRelease(t.Context(), "k"); err != nil {
			t.Errorf("%s: %v", step, err)
		}
	}
}

// Two clients that come to lead to one server, as when a name is resolved anew, have one vote.
func TestRedLockOneServerHasOneVote(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3)
	moving, lead := movingClient(t, ns[2])
	const ttl = time.Second
	locks := newLocks(t, core.RedLock([]redis.UniversalClient{ns[0].Client(), ns[1].Client(), moving}, core.WithMaxTTL(ttl)), core.WithTTL(ttl))
	lease := acquire(t, locks, "k")
	lead(ns[1])
	outlives(t, lease, 2*ttl) // renewed by the other two; were the third counted, it would be by now
	ns[0].Pause()
	ends(t, lease, 2*ttl)
	_, err := locks.Acquire(t.Context(), "other")
	wantErr(t, err, core.ErrUnavailable)
	lead(ns[2])
	eventually(t, 10*time.Second, "a majority of two servers", func() bool {
		next, err := locks.Acquire(t.Context(), "other")
		if err == nil {
			release(t, next)
		}
		return err == nil
	})
	ns[0].Resume()
}

// Nor have they two when a Backend is used by hand, without New that would refuse them: not even for the first lock, before
// anything is known of the nodes but what the judge has seen.
func TestRedLockOneServerHasOneVoteAtFirst(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3)
	ns.enrol(t)
	must(t, ns[2].Client().Set(t.Context(), "k", "another", time.Minute).Err())
	clients := []redis.UniversalClient{ns[0].Client(), ns[0].Client(), ns[2].Client()}
	for i := range 50 {
		b := core.RedLock(clients, core.WithNodeTimeout(time.Second))
		op := &core.Op{Action: core.Try, Hold: core.Hold{Key: "k", TTL: 10 * time.Second}, Owner: fmt.Sprintf("%032x", i), Fences: 1}
		b.Do(t.Context(), []*core.Op{op})
		must(t, b.(core.Closer).Close())
		if op.Verdict == core.Granted {
			t.Fatal("one server of two that answer has made a majority of three")
		}
	}
}

// What is taken away by force is gone from every node that answers when ForceRelease returns, though its holder is dead and
// takes nothing back.
func TestRedLockForceReachesAllNodes(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 5)
	ns.enrol(t)
	b := ns.redlock()
	closeBackend(t, b)
	tryFor(t, b, "k", 30*time.Second)
	eventually(t, 5*time.Second, "all nodes have it", func() bool { return ns.holders(t, "k") == 5 })
	must(t, newLocks(t, ns.redlock()).ForceRelease(t.Context(), "k"))
	if n := ns.holders(t, "k"); n != 0 {
		t.Errorf("%d nodes have it still", n)
	}
}

// Where a force has been, the lock is not filled in while the force is under way elsewhere: it would move there, and live.
func TestRedLockNothingIsFilledInBesideAForce(t *testing.T) {
	t.Parallel()
	for _, kind := range []core.Kind{core.Exclusive, core.Shared} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			fillInBesideAForce(t, core.Hold{Key: "k", Kind: kind, TTL: 30 * time.Second})
		})
	}
}

func fillInBesideAForce(t *testing.T, h core.Hold) {
	ns := startNodes(t, 3)
	ns.enrol(t)
	const nodeTimeout = 3 * time.Second // of the operator; the trace stays for twice that
	theirs, late := ns[2].Proxy(t), [2]*redistest.Proxy{ns[0].Proxy(t), ns[1].Proxy(t)}
	b := core.RedLock([]redis.UniversalClient{ns[0].Client(), ns[1].Client(), theirs.NewClient(nil)})
	closeBackend(t, b)
	operator := newLocks(t, core.RedLock([]redis.UniversalClient{late[0].NewClient(nil), late[1].NewClient(nil), ns[2].Client()},
		core.WithNodeTimeout(nodeTimeout)))
	tryFor(t, b, "warm", 10*time.Second)
	theirs.Cut()
	hold := tryHold(t, b, h, strings.Repeat("1", 32))         // at two nodes
	time.Sleep(core.DefaultNodeTimeout + 20*time.Millisecond) // what waits for node 2 is too old to be sent by now
	theirs.Restore()
	eventually(t, 5*time.Second, "node 2 answers again", func() bool {
		info, err := b.(core.Inspector).Inspect(t.Context(), "other")
		return err == nil && info.Nodes[2].Err == nil
	})
	if ns[2:].holders(t, "k") != 0 {
		t.Fatal("node 2 has it before its time")
	}
	late[0].Cut()
	late[1].Cut()
	began := time.Now()
	if err := operator.ForceRelease(t.Context(), "k"); err == nil {
		t.Fatal("a force that reached one node of three")
	}
	if op := carry(t, b, core.Extend, hold); op.Verdict != core.OK {
		t.Fatalf("extend: %v, %v", op.Verdict, op.Err)
	}
	answered := carry(t, b, core.Extend, hold) // behind the other in each node's queue
	filled := ns[2:].holders(t, "k") != 0
	if took := time.Since(began); took > 2*nodeTimeout {
		t.Fatalf("after %v the force's trace may have passed: this shows nothing", took)
	}
	if filled {
		t.Errorf("it is filled in at node 2, where the force has been (%v)", answered.Verdict)
	}
}

// A lock that may have run out at a node, unseen, and was put there again by a renewal whose answer was lost, has not been
// there all the time. So it does not make up for nodes from which the lock was taken by force.
func TestRedLockLostAnswersProveNothing(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3)
	proxy := ns[0].Proxy(t)
	ns.enrol(t)
	const ttl, nodeTimeout = 1500 * time.Millisecond, 250 * time.Millisecond
	b := core.RedLock([]redis.UniversalClient{proxy.NewClient(nil), ns[1].Client(), ns[2].Client()}, core.WithNodeTimeout(nodeTimeout))
	closeBackend(t, b)
	hold := tryFor(t, b, "k", ttl)
	eventually(t, ttl/4, "all nodes have it", func() bool { return ns.holders(t, "k") == 3 })
	// Node 0 lets the lock run out while the others extend it.
	proxy.Cut()
	extend := func() core.Verdict {
		t.Helper()
		op := carry(t, b, core.Extend, hold)
		if op.Verdict == core.Absent || op.Verdict == core.Foreign {
			t.Fatalf("extend: %v", op.Verdict)
		}
		return op.Verdict
	}
	eventually(t, 5*time.Second, "it has run out at node 0", func() bool {
		return extend() == core.OK && ns[:1].holders(t, "k") == 0
	})
	time.Sleep(nodeTimeout + 20*time.Millisecond) // what waits for node 0 is too old to be sent by now
	proxy.Restore()
	eventually(t, 5*time.Second, "node 0 answers again", func() bool {
		info, err := b.(core.Inspector).Inspect(t.Context(), "other")
		return err == nil && info.Nodes[0].Err == nil
	})
	if ns[:1].holders(t, "k") != 0 {
		t.Fatal("node 0 has it before its time")
	}
	// It is put there again, and the answer is lost.
	proxy.CutReplies()
	if v := extend(); v != core.OK {
		t.Fatalf("extend: %v", v)
	}
	eventually(t, ttl, "it is on node 0 again", func() bool { return ns[:1].holders(t, "k") == 1 })
	proxy.Restore()
	must(t, ns[1].Client().Del(t.Context(), "k").Err())
	if v := extend(); v == core.OK {
		t.Error("node 0 counts, from which the lock was missing in between")
	}
}

// A replica that is promoted has the marker of its master and not the latest locks: it has lost its memory.
func TestRedLockDoesNotTrustAPromotedReplica(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 5)
	masters, replicas := ns[:3], ns[3:]
	const most = 2 * time.Second
	holder := newLocks(t, masters.redlock(core.WithMaxTTL(most)))
	clients, leads := clientsOf(masters), make([]func(*redistest.Server), 2)
	for i := range leads {
		clients[i], leads[i] = movingClient(t, masters[i])
	}
	rival := newLocks(t, core.RedLock(clients, core.WithMaxTTL(most), core.WithNodeTimeout(time.Second)))
	release(t, acquire(t, rival, "warm", core.WithTTL(most)))
	for i, r := range replicas {
		host, port, _ := net.SplitHostPort(masters[i].Addr())
		must(t, r.Client().ReplicaOf(t.Context(), host, port).Err())
		eventually(t, 10*time.Second, "the replica has the marker", func() bool {
			return r.Client().Exists(t.Context(), "latchkit~node").Val() == 1
		})
		must(t, r.Client().ReplicaOf(t.Context(), "NO", "ONE").Err())
	}
	lease := acquire(t, holder, "k", core.WithTTL(most), core.WithoutRenewal())
	for i, lead := range leads {
		lead(replicas[i])
	}
	next := acquire(t, rival, "k", core.WithTTL(most), core.WithWait(20*time.Second))
	if left := lease.Remaining(); left > 0 {
		t.Errorf("a second holder while the first still had %v", left)
	}
	if next.Fence() <= lease.Fence() {
		t.Errorf("fence %d after %d", next.Fence(), lease.Fence())
	}
	release(t, next)
}

// movingClient is a client of a server, and what leads it to another.
func movingClient(t *testing.T, s *redistest.Server) (*redis.Client, func(*redistest.Server)) {
	var to atomic.Pointer[redistest.Server]
	to.Store(s)
	rdb := redis.NewClient(&redis.Options{Addr: "moving:1", Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, to.Load().Addr())
	}})
	t.Cleanup(func() { rdb.Close() })
	return rdb, func(s *redistest.Server) {
		from := to.Swap(s)
		must(t, from.Client().ClientKillByFilter(context.Background(), "TYPE", "normal", "SKIPME", "yes").Err())
	}
}

// One key that a node's rights do not cover is that key's trouble, not that of others in its batch.
func TestRedLockErrorsAreEachKeysOwn(t *testing.T) {
	ns := startNodes(t, 3)
	ns.enrol(t)
	var clients []redis.UniversalClient
	for _, s := range ns {
		must(t, s.Client().ACLSetUser(t.Context(), "shop", "on", ">secret", "~shop:*", "~latchkit~*", "&*", "+@all").Err())
		clients = append(clients, s.NewClient(func(o *redis.Options) { o.Username, o.Password = "shop", "secret" }))
	}
	b := core.RedLock(clients, core.WithNodeTimeout(time.Second))
	closeBackend(t, b)
	var ops []*core.Op
	for i, key := range []string{"shop:a", "other", "shop:b"} {
		ops = append(ops, &core.Op{Action: core.Try, Hold: core.Hold{Key: key, TTL: time.Minute}, Owner: strings.Repeat(string(rune('0'+i)), 32), Fences: 1})
	}
	b.Do(t.Context(), ops)
	for i, want := range []core.Verdict{core.Granted, core.None, core.Granted} {
		if ops[i].Verdict != want {
			t.Errorf("%q: %v, %v", ops[i].Key, ops[i].Verdict, ops[i].Err)
		}
	}
	wantErr(t, ops[1].Err, core.ErrDenied)
}

// Renewals go out in batches: a node is called a few times for all of them.
func TestRedLockRenewsInBatches(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3)
	locks := newLocks(t, ns.redlock(), core.WithTTL(3*time.Second))
	const leases = 200
	for i := range leases {
		acquire(t, locks, "k"+strconv.Itoa(i))
	}
	before := calls(t, ns[0])
	ttl := func() time.Duration { return ns[0].Client().PTTL(t.Context(), "k"+strconv.Itoa(leases-1)).Val() }
	last, renewed := ttl(), 0
	eventually(t, 20*time.Second, "two renewals", func() bool { // the last to be taken is among the last to be renewed
		now := ttl()
		if now > last {
			renewed++
		}
		last = now
		return renewed == 2
	})
	if n := calls(t, ns[0]) - before; n > leases/4 {
		t.Errorf("%d calls for %d leases, each renewed twice", n, leases)
	}
}

// calls returns how many scripts the server has run.
func calls(t testing.TB, s *redistest.Server) (n int) {
	t.Helper()
	for line := range strings.Lines(s.Client().Info(t.Context(), "commandstats").Val()) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_evalsha:calls="); ok {
			text, _, _ := strings.Cut(rest, ",")
			n, _ = strconv.Atoi(text)
		}
	}
	return n
}
