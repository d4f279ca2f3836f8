package locktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
)

// kindsSuite are the tests of what is not an exclusive hold. A Backend that refuses such a hold skips them.
var kindsSuite = []suiteTest{
	{"ReadersShareAndWritersDoNot", readersShare},
	{"ReadersBehindAWriterComeTogether", readersComeTogether},
	{"WaitingWriterKeepsReadersOut", waitingWriter},
	{"WaitingWriterThatReadsKeepsReadersOut", waitingWriterReads},
	{"WriterThatGaveUpLetsReadersIn", writerGivesUp},
	{"EachReaderHasItsOwnDeadline", readersDeadlines},
	{"WriterMayReadAndReaderMayNotWrite", upgrade},
	{"LimitIsExact", limitIsExact},
	{"PermitWakesAtOnce", permitWakes},
	{"ExpiredPermitComesBack", expiredPermit},
	{"EachGoesByItsOwnLimit", ownLimits},
	{"KindsExcludeEachOther", kindsExclude},
	{"CompletedBesideOtherReaders", completedBesideReaders},
	{"FairIsInOrderOfArrival", fairOrder},
	{"FairWaitersThatRetryDoNotDrift", fairRetries},
	{"FairNewcomerDoesNotPass", fairNewcomer},
	{"FairKeepsPlacesBehindALongHold", fairLongHold},
	{"FairCrowdIsExact", fairCrowd},
}

// needs skips the test when the backend cannot carry such a hold.
func (b *bench) needs(opts ...core.Option) {
	b.Helper()
	lease, err := b.engine().Acquire(b.Context(), "needs", opts...)
	if errors.Is(err, core.ErrInvalidOption) {
		b.Skipf("this backend says: %v", err)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.release(lease)
}

// later acquires the key k in the background.
func (b *bench) later(l core.Locker, opts ...core.Option) <-chan *core.Lease {
	got := make(chan *core.Lease, 1)
	go func() {
		lease, err := l.Acquire(b.Context(), "k", opts...)
		if err != nil && b.Context().Err() == nil {
			b.Errorf("acquire in the background: %v", err)
		}
		got <- lease
	}()
	return got
}

// within waits for a lease that was asked for in the background.
func (b *bench) within(d time.Duration, got <-chan *core.Lease) *core.Lease {
	b.Helper()
	select {
	case lease := <-got:
		if lease == nil {
			b.FailNow()
		}
		return lease
	case <-time.After(d):
		b.Fatalf("not acquired within %v", d)
		return nil
	}
}

// waiters waits until n engines wait for the key k. The test has called inspects.
func (b *bench) waiters(l *core.Locks, n int) {
	b.Helper()
	b.eventually("the waiters are known", func() bool {
		info, err := l.Inspect(b.Context(), "k")
		return err == nil && info.Waiters >= n
	})
}

// soon is how long a waiter may take that is woken, less than a poll.
const soon = 900 * time.Millisecond

func readersShare(b *bench) {
	b.needs(core.WithShared())
	one, two := b.engine(), b.engine()
	first := b.acquire(one, "k", core.WithShared())
	second := b.acquire(one, "k", core.WithShared())
	third := b.acquire(two, "k", core.WithShared())
	if first.Fence() != 0 && (second.Fence() <= first.Fence() || third.Fence() <= second.Fence()) {
		b.Errorf("fences %d, %d, %d", first.Fence(), second.Fence(), third.Fence())
	}
	for _, l := range []*core.Locks{one, two} {
		if busy := b.refused(l, "k"); busy.RetryAfter <= 0 {
			b.Errorf("refusal is %+v", busy)
		}
	}
	b.release(first)
	b.want(first.Release(b.Context()), core.ErrNotHeld)
	b.release(second)
	b.refused(one, "k")
	b.release(third)
	writer := b.acquire(one, "k")
	b.refused(two, "k", core.WithShared())
	b.refused(one, "k", core.WithShared())
	b.release(writer)
	b.release(b.acquire(two, "k", core.WithShared()))
}

func readersComeTogether(b *bench) {
	b.needs(core.WithShared())
	b.inspects()
	one, two := b.engine(), b.engine()
	writer := b.acquire(one, "k")
	var got []<-chan *core.Lease
	for i := range 6 {
		got = append(got, b.later([]*core.Locks{one, two}[i%2], core.WithShared(), core.WithWait(20*time.Second)))
	}
	b.waiters(one, 1)
	b.release(writer)
	var held []*core.Lease
	for _, g := range got { // none is released before all are there
		held = append(held, b.within(5*time.Second, g))
	}
	for _, lease := range held {
		b.release(lease)
	}
}

func waitingWriter(b *bench) {
	b.needs(core.WithShared())
	b.inspects()
	one, two, three := b.engine(), b.engine(), b.engine()
	reader := b.acquire(one, "k", core.WithShared())
	got := b.later(two, core.WithWait(20*time.Second))
	b.waiters(one, 1)
	b.refused(three, "k", core.WithShared())
	b.refused(one, "k", core.WithShared())
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 4 { // readers that keep coming, two of them at any time
		wg.Go(func() {
			for !stop.Load() {
				lease, err := three.Acquire(b.Context(), "k", core.WithShared(), core.WithWait(50*time.Millisecond))
				if err == nil {
					time.Sleep(20 * time.Millisecond)
					lease.Release(b.Context())
				}
			}
		})
	}
	b.release(reader)
	writer := b.within(soon, got)
	stop.Store(true)
	b.release(writer)
	wg.Wait()
}

// waitingWriterReads is a writer whose own process has a reader.
func waitingWriterReads(b *bench) {
	b.needs(core.WithShared())
	b.inspects()
	one, two, three := b.engine(), b.engine(), b.engine()
	first, own := b.acquire(one, "k", core.WithShared()), b.acquire(two, "k", core.WithShared())
	got := b.later(two, core.WithWait(20*time.Second))
	b.waiters(one, 1)
	b.refused(three, "k", core.WithShared())
	b.refused(two, "k", core.WithShared())
	b.release(own)
	b.release(first)
	writer := b.within(soon, got)
	b.refused(two, "k", core.WithShared())
	b.release(writer)
	own = b.acquire(two, "k", core.WithShared())
	got = b.later(two, core.WithWait(20*time.Second))
	b.waiters(one, 1)
	b.release(own)
	b.release(b.within(soon, got))
}

func writerGivesUp(b *bench) {
	b.needs(core.WithShared())
	b.inspects()
	one, two, three := b.engine(), b.engine(), b.engine()
	reader := b.acquire(one, "k", core.WithShared())
	ctx, cancel := context.WithCancel(b.Context())
	gone := make(chan error)
	go func() {
		_, err := two.Acquire(ctx, "k", core.WithWait(core.Forever))
		gone <- err
	}()
	b.waiters(one, 1)
	got := b.later(three, core.WithShared(), core.WithWait(20*time.Second))
	b.waiters(one, 2)
	cancel()
	b.want(<-gone, context.Canceled)
	b.release(b.within(soon, got))
	b.release(reader)
}

func readersDeadlines(b *bench) {
	b.needs(core.WithShared())
	one, two := b.engine(), b.engine()
	began := time.Now()
	b.crashed(core.Hold{Key: "k", Kind: core.Shared, TTL: 1500 * time.Millisecond})
	b.crashed(core.Hold{Key: "k", Kind: core.Shared, TTL: 300 * time.Millisecond})
	writer := b.acquire(two, "k", core.WithWait(20*time.Second))
	if took := time.Since(began); took < 1400*time.Millisecond {
		b.Errorf("the writer came after %v, beside a reader of 1.5 s", took)
	}
	b.release(writer)

	began = time.Now()
	b.crashed(core.Hold{Key: "k", Kind: core.Shared, TTL: 300 * time.Millisecond})
	b.release(b.acquire(one, "k", core.WithShared(), core.WithTTL(20*time.Second)))
	b.release(b.acquire(two, "k", core.WithWait(20*time.Second)))
	if took := time.Since(began); took > 5*time.Second {
		b.Errorf("a crashed reader of 300 ms kept the writer out for %v", took)
	}
}

// crashed takes h for a process that is never heard of again.
func (b *bench) crashed(h core.Hold) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
	defer cancel()
	b.owners++
	op := &core.Op{Action: core.Try, Hold: h, Owner: fmt.Sprintf("%032x", b.owners), Fences: 1}
	b.backend.Do(ctx, []*core.Op{op})
	if op.Err != nil || op.Verdict != core.Granted {
		b.Fatalf("%v of %q: verdict %d, %v", h.Kind, h.Key, op.Verdict, op.Err)
	}
}

func upgrade(b *bench) {
	b.needs(core.WithShared())
	one, two := b.engine(), b.engine()
	writer := b.acquire(one, "k")
	inner, err := one.Acquire(writer.Context(), "k", core.WithShared())
	if err != nil || inner.Fence() != writer.Fence() {
		b.Fatalf("reading inside a write: %v", err)
	}
	b.release(inner)
	b.refused(two, "k", core.WithShared())
	b.release(writer)
	reader := b.acquire(one, "k", core.WithShared())
	began := time.Now()
	_, err = one.Acquire(reader.Context(), "k", core.WithWait(time.Minute))
	b.want(err, core.ErrInvalidOption)
	b.want(err, core.ErrNotAcquired)
	if time.Since(began) > soon {
		b.Error("an upgrade is refused late")
	}
	again, err := one.Acquire(reader.Context(), "k", core.WithShared())
	if err != nil {
		b.Fatal(err)
	}
	b.release(reader)
	b.refused(two, "k")
	b.release(again)
	b.release(b.acquire(two, "k"))
}

func limitIsExact(b *bench) {
	b.needs(core.WithLimit(3))
	engines := []*core.Locks{b.engine(), b.engine()}
	var inside, most atomic.Int64
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			for range 8 {
				lease, err := engines[i%2].Acquire(b.Context(), "k", core.WithLimit(3), core.WithWait(time.Minute))
				if err != nil {
					b.Errorf("acquire a permit: %v", err)
					return
				}
				n := inside.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(time.Millisecond)
				inside.Add(-1)
				if err := lease.Release(b.Context()); err != nil {
					b.Errorf("release a permit: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if most.Load() > 3 {
		b.Errorf("%d held at once, want 3 at most", most.Load())
	}
}

func permitWakes(b *bench) {
	b.needs(core.WithLimit(3))
	b.inspects()
	one, two := b.engine(), b.engine()
	for _, waiting := range []*core.Locks{one, two} {
		held := []*core.Lease{b.acquire(one, "k", core.WithLimit(3)), b.acquire(one, "k", core.WithLimit(3)),
			b.acquire(two, "k", core.WithLimit(3))}
		b.refused(waiting, "k", core.WithLimit(3))
		got := b.later(waiting, core.WithLimit(3), core.WithWait(20*time.Second))
		b.waiters(one, 1)
		b.release(held[0])
		held[0] = b.within(soon, got)
		for _, lease := range held {
			b.release(lease)
		}
	}
}

func expiredPermit(b *bench) {
	b.needs(core.WithLimit(2))
	one, two := b.engine(), b.engine()
	expired := b.acquire(one, "own", core.WithLimit(2), core.WithTTL(shortTTL), core.WithoutRenewal())
	b.ends(expired, core.ErrLost)
	b.want(expired.Release(b.Context()), core.ErrLost)
	b.crashed(core.Hold{Key: "k", Kind: core.Limited, Limit: 2, TTL: 300 * time.Millisecond})
	other := b.acquire(one, "k", core.WithLimit(2), core.WithTTL(20*time.Second))
	third := b.within(3*time.Second, b.later(two, core.WithLimit(2), core.WithWait(20*time.Second)))
	b.refused(two, "k", core.WithLimit(2))
	b.release(other)
	b.release(third)
}

func ownLimits(b *bench) {
	b.needs(core.WithLimit(2))
	one, two := b.engine(), b.engine()
	first := b.acquire(one, "k", core.WithLimit(1))
	b.refused(two, "k", core.WithLimit(1))
	second := b.acquire(two, "k", core.WithLimit(2))
	b.refused(one, "k", core.WithLimit(2))
	third := b.acquire(one, "k", core.WithLimit(3))
	for _, lease := range []*core.Lease{first, second, third} {
		b.release(lease)
	}
}

func kindsExclude(b *bench) {
	kinds := b.carried()
	one, two := b.engine(), b.engine()
	for name, opts := range kinds {
		lease := b.acquire(one, "k", opts...)
		for other, theirs := range kinds {
			if other != name {
				b.refused(two, "k", theirs...)
				b.refused(one, "k", theirs...)
			}
		}
		b.release(lease)
	}
}

func completedBesideReaders(b *bench) {
	b.needs(core.WithShared())
	one, two := b.engine(), b.engine()
	first, second := b.acquire(one, "k", core.WithShared()), b.acquire(two, "k", core.WithShared())
	if err := first.ReleaseAfter(b.Context(), 20*time.Second); err != nil {
		b.Fatal(err)
	}
	b.refused(one, "k", core.WithShared())
	b.release(second)
	for _, opts := range [][]core.Option{nil, {core.WithShared()}} {
		if busy := b.refused(two, "k", opts...); !busy.Completed || busy.RetryAfter > 20*time.Second {
			b.Errorf("refusal is %+v, want completed", busy)
		}
	}
}

func fairOrder(b *bench) {
	b.needs(core.WithFair())
	line := b.watchLine()
	// More waiters than engines: each engine must keep the places of several.
	engines := []*core.Locks{b.engine(), b.engine(), b.engine()}
	holder := b.engine()
	lease := b.acquire(holder, "k")
	if lease.Degraded() {
		b.release(lease)
		b.Skip("without its store this backend keeps no order")
	}
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	for i := range 9 {
		wg.Go(func() {
			lease, err := engines[(i*2)%3].Acquire(b.Context(), "k", core.WithFair(), core.WithWait(time.Minute))
			if err != nil {
				b.Errorf("fair waiter %d: %v", i, err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if err := lease.Release(b.Context()); err != nil {
				b.Errorf("fair waiter %d: %v", i, err)
			}
		})
		line.arrived(b, i+1)
	}
	b.release(lease)
	wg.Wait()
	for i, n := range order {
		if i != n {
			b.Fatalf("served in the order %v", order)
		}
	}
}

// line stands before the bench's Backend, and sees who has been given a place in line.
type line struct {
	core.Backend
	mu      sync.Mutex
	tickets map[string]bool
}

// watchLine has the engines that are made from now on seen.
func (b *bench) watchLine() *line {
	l := &line{Backend: b.backend, tickets: map[string]bool{}}
	b.backend = l
	return l
}

func (l *line) Do(ctx context.Context, ops []*core.Op) {
	l.Backend.Do(ctx, ops)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, op := range ops {
		if op.Ticket != "" && op.Err == nil && (op.Action == core.Arrive || op.Verdict == core.Refused) {
			l.tickets[op.Ticket] = true
		}
	}
}

// Watch implements core.Watcher.
func (l *line) Watch(ctx context.Context, key string, wake func(by, next string)) (stop func(), err error) {
	if w, ok := l.Backend.(core.Watcher); ok {
		return w.Watch(ctx, key, wake)
	}
	return nil, errors.ErrUnsupported
}

// Close implements core.Closer.
func (l *line) Close() error {
	if c, ok := l.Backend.(core.Closer); ok {
		return c.Close()
	}
	return nil
}

// arrived waits until n have stood in line.
func (l *line) arrived(b *bench, n int) {
	b.Helper()
	b.eventually("they stand in line", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.tickets) >= n
	})
}

func fairRetries(b *bench) {
	b.needs(core.WithFair())
	b.inspects()
	one, two, three := b.engine(), b.engine(), b.engine()
	lease := b.acquire(one, "k")
	got := b.later(two, core.WithFair(), core.WithWait(time.Minute))
	b.waiters(one, 1)
	var wg sync.WaitGroup
	var stop atomic.Bool
	var tried, passed atomic.Int64
	for range 3 {
		wg.Go(func() {
			for ; !stop.Load(); tried.Add(1) {
				lease, err := three.Acquire(b.Context(), "k", core.WithFair(), core.WithWait(20*time.Millisecond))
				if err == nil {
					passed.Add(1)
					lease.Release(b.Context())
				}
			}
		})
	}
	b.eventually("they have come again and again", func() bool { return tried.Load() >= 60 })
	b.release(lease)
	first := b.within(time.Minute, got) // how long it takes is a matter of the machine; how many go first is not
	if n := passed.Load(); n > 0 {
		b.Errorf("%d who came later, and came again, went first", n)
	}
	b.release(first)
	// Places that were given up are in nobody's way, and not only when they would have run out.
	stop.Store(true)
	wg.Wait()
	b.release(b.within(core.WaiterTTL*3/5, b.later(two, core.WithFair(), core.WithWait(time.Minute))))
}

func fairNewcomer(b *bench) {
	b.needs(core.WithFair())
	b.inspects()
	one, two, three := b.engine(), b.engine(), b.engine()
	lease := b.acquire(one, "k")
	ctx, cancel := context.WithCancel(b.Context())
	gone := make(chan error)
	go func() {
		_, err := two.Acquire(ctx, "k", core.WithFair(), core.WithWait(core.Forever))
		gone <- err
	}()
	b.waiters(one, 1)
	got := b.later(three, core.WithFair(), core.WithWait(time.Minute))
	b.waiters(one, 2)
	cancel()
	b.want(<-gone, context.Canceled)
	b.release(lease)
	third := b.within(soon, got)
	b.refused(one, "k", core.WithFair())
	b.release(third)
}

func fairLongHold(b *bench) {
	b.needs(core.WithFair())
	b.inspects()
	if testing.Short() {
		b.Skip("holds for longer than a waiter counts")
	}
	line := b.watchLine()
	one, two, three := b.engine(), b.engine(), b.engine()
	lease := b.acquire(one, "k", core.WithFair())
	// The first stands behind a lease of its own process, where nobody asks the backend for it.
	first := b.later(one, core.WithFair(), core.WithWait(time.Minute))
	line.arrived(b, 1)
	second := b.later(two, core.WithFair(), core.WithWait(time.Minute))
	line.arrived(b, 2)
	time.Sleep(core.WaiterTTL + core.WaiterTTL/2) // longer than they count unless they are heard of
	third := b.later(three, core.WithFair(), core.WithWait(time.Minute))
	line.arrived(b, 3)
	b.release(lease)
	next := b.within(soon, first)
	for _, got := range []<-chan *core.Lease{second, third} {
		select {
		case <-got:
			b.Fatal("passed one that came before")
		case <-time.After(50 * time.Millisecond):
		}
		b.release(next)
		next = b.within(soon, got)
	}
	b.release(next)
}

func fairCrowd(b *bench) {
	b.needs(core.WithFair())
	engines := []*core.Locks{b.engine(), b.engine()}
	var inside atomic.Int64
	var last int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 5 {
				lease, err := engines[i%2].Acquire(b.Context(), "k", core.WithFair(), core.WithWait(time.Minute))
				if err != nil {
					b.Errorf("acquire in a crowd: %v", err)
					return
				}
				if n := inside.Add(1); n != 1 {
					b.Errorf("%d at once", n)
				}
				if f := lease.Fence(); f != 0 && f <= last {
					b.Errorf("fence %d after %d", f, last)
				} else {
					last = f
				}
				inside.Add(-1)
				if err := lease.Release(b.Context()); err != nil {
					b.Errorf("release in a crowd: %v", err)
				}
			}
		})
	}
	wg.Wait()
}
