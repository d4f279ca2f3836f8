package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
)

// Run checks that the engine over the Backends that newBackend makes keeps latchkit's promises. newBackend is called
// once for each test and must return a Backend over a store that nobody else uses; its cleanup belongs to t. Two engines
// over that Backend stand for two processes.
func Run(t *testing.T, newBackend func(t *testing.T) core.Backend) {
	for _, c := range slices.Concat(suite, kindsSuite, usesSuite) {
		t.Run(c.name, func(t *testing.T) {
			c.test(&bench{T: t, backend: newBackend(t)})
		})
	}
}

type suiteTest struct {
	name string
	test func(b *bench)
}

var suite = []suiteTest{
	{"ExcludesOthers", excludesOthers},
	{"ReleaseFreesOnce", releaseFreesOnce},
	{"ReleaseWithDeadContext", releaseWithDeadContext},
	{"ExpiryLosesTheLease", expiryLosesTheLease},
	{"ExpiredReleaseLeavesTheNextHolder", expiredReleaseLeavesTheNextHolder},
	{"RenewalOutlivesTheTTL", renewalOutlivesTheTTL},
	{"ExtendProlongsAndNeverShortens", extendProlongs},
	{"ExtendAfterReleaseCreatesNothing", extendAfterRelease},
	{"WaiterIsWokenByARelease", waiterIsWoken},
	{"WaiterTakesOverAnExpiredKey", waiterTakesOverExpired},
	{"WaitIsNotBoundByTheTTL", waitIsNotBoundByTTL},
	{"DeadlineEndsTheWait", deadlineEndsTheWait},
	{"CancelLeavesNothing", cancelLeavesNothing},
	{"FencesGrow", fencesGrow},
	{"ReentryIsCounted", reentryIsCounted},
	{"ReentryAfterLossIsLost", reentryAfterLoss},
	{"CompletedKeepsOthersOut", completedKeepsOthersOut},
	{"CrowdIsExact", crowdIsExact},
	{"AnyBytesAreAKey", anyBytesAreAKey},
	{"KeysDoNotTouchCompanions", keysDoNotTouchCompanions},
	{"CloseFreesWhatIsHeld", closeFrees},
	{"ForceReleaseLosesTheLease", forceRelease},
	{"OperationsOfABatchAnswerEachForItself", batchAnswers},
}

// bench is what a test of the suite works with.
type bench struct {
	*testing.T
	backend core.Backend
	owners  int // of crashed processes
}

func (b *bench) engine(opts ...core.Option) *core.Locks {
	b.Helper()
	return engine(b.T, b.backend, opts...)
}

func (b *bench) acquire(l core.Locker, key string, opts ...core.Option) *core.Lease {
	b.Helper()
	lease, err := l.Acquire(b.Context(), key, opts...)
	if err != nil {
		b.Fatalf("acquire %q: %v", key, err)
	}
	return lease
}

func (b *bench) release(lease *core.Lease) {
	b.Helper()
	if err := lease.Release(context.Background()); err != nil {
		b.Fatalf("release %q: %v", lease.Key(), err)
	}
}

func (b *bench) refused(l core.Locker, key string, opts ...core.Option) *core.NotAcquiredError {
	b.Helper()
	lease, err := l.Acquire(b.Context(), key, opts...)
	if err == nil {
		lease.Release(context.Background())
		b.Fatalf("acquire %q: got a lease while it is held", key)
	}
	var busy *core.NotAcquiredError
	if !errors.Is(err, core.ErrNotAcquired) || !errors.As(err, &busy) {
		b.Fatalf("acquire %q: %v, want ErrNotAcquired", key, err)
	}
	return busy
}

func (b *bench) want(err, target error) {
	b.Helper()
	if !errors.Is(err, target) {
		b.Fatalf("got %v, want %v", err, target)
	}
}

// eventually polls until ok, for at most 10 s.
func (b *bench) eventually(what string, ok func() bool) {
	b.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(end) {
			b.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func (b *bench) ends(lease *core.Lease, cause error) {
	b.Helper()
	select {
	case <-lease.Context().Done():
		b.want(context.Cause(lease.Context()), cause)
	case <-time.After(10 * time.Second):
		b.Fatalf("the lease's context never ended, want %v", cause)
	}
}

func excludesOthers(b *bench) {
	one, two := b.engine(core.WithTTL(20*time.Second)), b.engine()
	lease := b.acquire(one, "k")
	for _, l := range []*core.Locks{one, two} {
		busy := b.refused(l, "k")
		if busy.Key != "k" || busy.RetryAfter <= 0 || busy.RetryAfter > 20*time.Second || busy.Completed {
			b.Errorf("refusal is %+v, want key k, at most 20 s to wait", busy)
		}
	}
	other := b.acquire(two, "other")
	if lease.Remaining() <= 0 || lease.Remaining() > 20*time.Second || time.Until(lease.Deadline()) > 20*time.Second {
		b.Errorf("remaining %v of 20 s", lease.Remaining())
	}
	b.release(other)
	b.release(lease)
}

func releaseFreesOnce(b *bench) {
	one, two := b.engine(), b.engine()
	lease := b.acquire(one, "k")
	ctx := lease.Context()
	b.release(lease)
	b.want(context.Cause(ctx), core.ErrReleased)
	b.want(lease.Release(b.Context()), core.ErrNotHeld)
	next := b.acquire(two, "k")
	b.want(lease.Release(b.Context()), core.ErrNotHeld)
	b.refused(one, "k")
	b.release(next)
}

func releaseWithDeadContext(b *bench) {
	one, two := b.engine(), b.engine()
	ctx, cancel := context.WithCancel(b.Context())
	lease, err := one.Acquire(ctx, "k")
	if err != nil {
		b.Fatal(err)
	}
	cancel()
	if err := lease.Release(ctx); err != nil {
		b.Fatalf("release under a dead context: %v", err)
	}
	b.release(b.acquire(two, "k"))
}

// shortTTL is that of a lease which is to expire: long enough for a RedLock's nodes on a busy machine, which have a
// quarter of it.
const shortTTL = 600 * time.Millisecond

func expiryLosesTheLease(b *bench) {
	one := b.engine()
	lease := b.acquire(one, "k", core.WithTTL(shortTTL), core.WithoutRenewal())
	b.ends(lease, core.ErrLost)
	if lease.Remaining() != 0 {
		b.Errorf("remaining %v after the loss", lease.Remaining())
	}
	b.want(lease.Extend(b.Context(), time.Second), core.ErrLost)
	b.want(lease.Release(b.Context()), core.ErrLost)
	b.release(b.acquire(one, "k", core.WithWait(5*time.Second)))
}

func expiredReleaseLeavesTheNextHolder(b *bench) {
	one, two := b.engine(), b.engine()
	first := b.acquire(one, "k", core.WithTTL(shortTTL), core.WithoutRenewal())
	second := b.acquire(two, "k", core.WithWait(10*time.Second))
	err := first.Release(b.Context())
	if !errors.Is(err, core.ErrLost) && !errors.Is(err, core.ErrNotHeld) {
		b.Fatalf("release of an expired lease: %v", err)
	}
	b.refused(one, "k")
	b.release(second)
}

func renewalOutlivesTheTTL(b *bench) {
	one, two := b.engine(), b.engine()
	ttl := time.Second // long enough for a busy machine to renew in time
	lease := b.acquire(one, "k", core.WithTTL(ttl))
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); {
		b.refused(two, "k")
		if lease.Remaining() <= 0 {
			b.Fatalf("lost: %v", context.Cause(lease.Context()))
		}
		time.Sleep(ttl / 20)
	}
	b.release(lease)
}

func extendProlongs(b *bench) {
	one := b.engine()
	lease := b.acquire(one, "k", core.WithTTL(2*time.Second), core.WithoutRenewal())
	if err := lease.Extend(b.Context(), time.Minute); err != nil {
		b.Fatal(err)
	}
	if r := lease.Remaining(); r < 50*time.Second || r > time.Minute {
		b.Errorf("remaining %v after an extension to 1 min", r)
	}
	if err := lease.Extend(b.Context(), time.Second); err != nil {
		b.Fatal(err)
	}
	if r := lease.Remaining(); r < 50*time.Second {
		b.Errorf("an extension shortened the lease to %v", r)
	}
	b.want(lease.Extend(b.Context(), time.Millisecond), core.ErrInvalidOption)
	b.release(lease)
}

func extendAfterRelease(b *bench) {
	one, two := b.engine(), b.engine()
	lease := b.acquire(one, "k")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := lease.Extend(b.Context(), time.Minute); err != nil && !errors.Is(err, core.ErrNotHeld) &&
				!errors.Is(err, core.ErrLost) {
				b.Errorf("extend while releasing: %v", err)
			}
		})
	}
	b.release(lease)
	wg.Wait()
	b.want(lease.Extend(b.Context(), time.Minute), core.ErrNotHeld)
	b.release(b.acquire(two, "k"))
}

func waiterIsWoken(b *bench) {
	one, two := b.engine(core.WithTTL(30*time.Second)), b.engine()
	for range 5 {
		lease := b.acquire(one, "k")
		got := make(chan *core.Lease)
		go func() {
			next, err := two.Acquire(b.Context(), "k", core.WithWait(20*time.Second))
			if err != nil {
				b.Errorf("waiter: %v", err)
			}
			got <- next
		}()
		time.Sleep(30 * time.Millisecond) // it may wait by now, or not: both are right
		began := time.Now()
		b.release(lease)
		b.release(<-got)
		if took := time.Since(began); took > 5*time.Second {
			b.Errorf("the waiter came %v after the release", took)
		}
	}
}

func waiterTakesOverExpired(b *bench) {
	one, two := b.engine(), b.engine()
	crashed := b.acquire(one, "k", core.WithTTL(shortTTL), core.WithoutRenewal())
	next := b.acquire(two, "k", core.WithWait(10*time.Second))
	if next.Fence() != 0 && next.Fence() <= crashed.Fence() {
		b.Errorf("fence %d after %d", next.Fence(), crashed.Fence())
	}
	b.release(next)
	crashed.Release(b.Context())
}

func waitIsNotBoundByTTL(b *bench) {
	one, two := b.engine(), b.engine()
	lease := b.acquire(one, "k")
	time.AfterFunc(time.Second, func() { lease.Release(context.Background()) })
	b.release(b.acquire(two, "k", core.WithTTL(shortTTL), core.WithWait(10*time.Second)))
}

func deadlineEndsTheWait(b *bench) {
	one, two := b.engine(), b.engine()
	lease := b.acquire(one, "k")
	for _, l := range []*core.Locks{one, two} {
		ctx, cancel := context.WithTimeout(b.Context(), 300*time.Millisecond)
		_, err := l.Acquire(ctx, "k", core.WithWait(core.Forever))
		b.want(err, core.ErrNotAcquired)
		b.want(err, context.DeadlineExceeded)
		cancel()
		began := time.Now()
		_, err = l.Acquire(b.Context(), "k", core.WithWait(100*time.Millisecond))
		b.want(err, core.ErrNotAcquired)
		if errors.Is(err, context.DeadlineExceeded) {
			b.Errorf("a spent wait is no deadline of the context: %v", err)
		}
		if took := time.Since(began); took < 100*time.Millisecond {
			b.Errorf("a wait of 100 ms took %v", took)
		}
	}
	b.release(lease)
}

func cancelLeavesNothing(b *bench) {
	one, two := b.engine(), b.engine()
	for i := range 100 {
		ctx, cancel := context.WithCancel(b.Context())
		time.AfterFunc(time.Duration(i*10)*time.Microsecond, cancel)
		lease, err := one.Acquire(ctx, "k", core.WithWait(time.Second))
		switch {
		case err == nil:
			lease.Release(ctx)
		case !errors.Is(err, context.Canceled):
			b.Fatalf("cancelled acquire: %v", err)
		}
		cancel()
	}
	b.release(b.acquire(two, "k", core.WithWait(5*time.Second)))
}

func fencesGrow(b *bench) {
	one, two := b.engine(), b.engine()
	var last int64
	for i := range 200 {
		l := one
		if i%3 == 0 {
			l = two
		}
		lease := b.acquire(l, "k", core.WithWait(5*time.Second))
		if lease.Fence() == 0 {
			b.release(lease)
			b.Skip("this backend does not fence")
		}
		if lease.Fence() <= last {
			b.Fatalf("fence %d after %d", lease.Fence(), last)
		}
		last = lease.Fence()
		b.release(lease)
	}
}

func reentryIsCounted(b *bench) {
	one, two := b.engine(), b.engine()
	outer := b.acquire(one, "k", core.WithTTL(10*time.Second))
	inner, err := one.Acquire(outer.Context(), "k", core.WithoutRenewal(), core.WithTTL(time.Second))
	if err != nil {
		b.Fatalf("re-entry: %v", err)
	}
	if inner.Fence() != outer.Fence() {
		b.Errorf("fence %d inside %d", inner.Fence(), outer.Fence())
	}
	if lease, ok := core.FromContext(inner.Context()); !ok || lease != inner {
		b.Error("FromContext does not find the innermost lease")
	}
	b.release(inner)
	if err := context.Cause(outer.Context()); err != nil || outer.Remaining() < 2*time.Second {
		b.Fatalf("the inner release left %v of the outer lease: %v", outer.Remaining(), err)
	}
	b.refused(two, "k")
	again, err := one.Acquire(outer.Context(), "k")
	if err != nil {
		b.Fatalf("second re-entry: %v", err)
	}
	b.release(outer)
	b.refused(two, "k")
	b.release(again)
	b.release(b.acquire(two, "k"))
}

func reentryAfterLoss(b *bench) {
	one := b.engine()
	outer := b.acquire(one, "k", core.WithTTL(shortTTL), core.WithoutRenewal())
	ctx := context.WithoutCancel(outer.Context())
	b.ends(outer, core.ErrLost)
	_, err := one.Acquire(ctx, "k")
	b.want(err, core.ErrLost)
	outer.Release(b.Context())
}

func completedKeepsOthersOut(b *bench) {
	one, two := b.engine(), b.engine()
	if err := b.acquire(one, "k").ReleaseAfter(b.Context(), time.Second); err != nil {
		b.Fatal(err)
	}
	for _, l := range []*core.Locks{one, two} {
		busy := b.refused(l, "k", core.WithWait(10*time.Second))
		if !busy.Completed || busy.RetryAfter <= 0 || busy.RetryAfter > time.Second {
			b.Errorf("refusal is %+v, want completed with at most 1 s left", busy)
		}
	}
	b.eventually("the cooldown ends", func() bool {
		lease, err := two.Acquire(b.Context(), "k")
		return err == nil && lease.Release(b.Context()) == nil
	})
}

func crowdIsExact(b *bench) {
	engines := []*core.Locks{b.engine(), b.engine()}
	const goroutines, rounds = 12, 15
	var inside, overlaps atomic.Int64
	count := 0
	var last int64
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for range rounds {
				lease, err := engines[i%2].Acquire(b.Context(), "k", core.WithWait(time.Minute))
				if err != nil {
					b.Errorf("acquire in a crowd: %v", err)
					return
				}
				if inside.Add(1) != 1 {
					overlaps.Add(1)
				}
				count++
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
	if overlaps.Load() > 0 || count != goroutines*rounds {
		b.Errorf("%d overlaps, counted %d of %d", overlaps.Load(), count, goroutines*rounds)
	}
}

func anyBytesAreAKey(b *bench) {
	one, two := b.engine(core.WithPrefix("p:")), b.engine(core.WithPrefix("p:"))
	if _, err := one.Acquire(b.Context(), ""); !errors.Is(err, core.ErrInvalidKey) {
		b.Errorf("the empty key: %v, want ErrInvalidKey", err)
	}
	keys := []string{"}x", "{a}", "{}", "{}x}", "{", "}", "{a", "a}{b}", strings.Repeat("k", 2048),
		strings.Repeat("k", 2049), "a\r\nb", "a\x00b", "\xff\xfe", " ", "latchkit~x"}
	for _, key := range keys {
		lease := b.acquire(one, key)
		if lease.Key() != key {
			b.Errorf("key %q became %q", key, lease.Key())
		}
		b.refused(two, key)
		got := make(chan error)
		go func() {
			next, err := two.Acquire(b.Context(), key, core.WithWait(20*time.Second))
			if err == nil {
				err = next.Release(b.Context())
			}
			got <- err
		}()
		time.Sleep(5 * time.Millisecond)
		b.release(lease)
		if err := <-got; err != nil {
			b.Errorf("waiting for %q: %v", key, err)
		}
	}
}

func keysDoNotTouchCompanions(b *bench) {
	one, two := b.engine(), b.engine()
	for name, opts := range b.carried() {
		lease := b.acquire(one, "k", opts...)
		done := make(chan error)
		go func() { // waiters, so that companions exist
			next, err := two.Acquire(b.Context(), "k", append(opts, core.WithWait(20*time.Second))...)
			if err == nil {
				err = next.Release(b.Context())
			}
			done <- err
		}()
		time.Sleep(5 * time.Millisecond) // they may exist by now, or come while others are locked: both are right
		for _, key := range []string{"latchkit~wait:{k}", "latchkit~hold:{k}", "latchkit~line:{k}", "latchkit~fence", "latchkit~key:k"} {
			other := b.acquire(two, key, opts...)
			if name == "exclusive" {
				b.refused(one, key)
			}
			b.release(other)
		}
		if name != "shared" && name != "limited" {
			b.refused(two, "k", opts...)
		}
		b.release(lease)
		if err := <-done; err != nil {
			b.Errorf("%s: %v", name, err)
		}
	}
}

func closeFrees(b *bench) {
	one, err := core.New(b.backend)
	if err != nil {
		b.Fatal(err)
	}
	two := b.engine()
	var leases []*core.Lease
	for i := range 3 {
		leases = append(leases, b.acquire(one, fmt.Sprint("k", i)))
	}
	ctx, cancel := context.WithTimeout(b.Context(), 300*time.Millisecond)
	defer cancel()
	closed := make(chan error)
	go func() { closed <- one.Close(ctx) }()
	for _, lease := range leases {
		b.ends(lease, core.ErrClosed)
	}
	if _, err := one.Acquire(b.Context(), "k"); !errors.Is(err, core.ErrClosed) {
		b.Errorf("acquire on a closed engine: %v", err)
	}
	b.refused(two, "k1")
	b.release(leases[0])
	b.want(<-closed, context.DeadlineExceeded)
	for i := range leases {
		b.release(b.acquire(two, fmt.Sprint("k", i)))
	}
	b.want(leases[1].Release(b.Context()), core.ErrLost)
}

func forceRelease(b *bench) {
	if _, ok := b.backend.(core.Inspector); !ok {
		b.Skip("this backend cannot inspect")
	}
	const ttl = 6 * time.Second
	one, two := b.engine(core.WithTTL(ttl)), b.engine()
	lease := b.acquire(one, "k")
	if err := two.ForceRelease(b.Context(), "k"); err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	b.ends(lease, core.ErrLost)
	if took := time.Since(began); took > ttl/3+2*time.Second {
		b.Errorf("its holder learned it after %v; renewals are %v apart", took, ttl/3)
	}
	next := b.acquire(two, "k")
	if next.Fence() != 0 && next.Fence() <= lease.Fence() {
		b.Errorf("fence %d after %d", next.Fence(), lease.Fence())
	}
	b.want(lease.Release(b.Context()), core.ErrLost)
	b.refused(one, "k")
	b.release(next)
	if info, err := one.Inspect(b.Context(), "k"); err != nil || info.Held {
		b.Errorf("inspect of a free key: %+v, %v", info, err)
	}
	if err := one.ForceRelease(b.Context(), "never"); err != nil && !errors.Is(err, core.ErrUnavailable) {
		b.Errorf("force release of a free key: %v", err)
	}
}

func batchAnswers(b *bench) {
	hold := func(key string) core.Hold { return core.Hold{Key: key, TTL: 10 * time.Second} }
	const mine, other = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	do := func(ops ...*core.Op) {
		ctx, cancel := context.WithTimeout(b.Context(), 2*time.Second)
		defer cancel()
		b.backend.Do(ctx, ops)
	}
	try := func(key, owner string) *core.Op {
		return &core.Op{Action: core.Try, Hold: hold(key), Owner: owner, Fences: 1}
	}
	on := func(a core.Action, key, owner string) *core.Op {
		return &core.Op{Action: a, Hold: hold(key), Owner: owner, Fences: 8}
	}
	check := func(op *core.Op, want core.Verdict) {
		b.Helper()
		if op.Err != nil || op.Verdict != want {
			b.Errorf("%v of %q: verdict %d, error %v; want %d", op.Action, op.Key, op.Verdict, op.Err, want)
		}
	}
	if b.backend.Route("a") != b.backend.Route("b") {
		b.Skip("the keys of this test do not share a route")
	}
	a, busy, c := try("a", mine), try("a", other), try("b", other)
	do(a, busy, c)
	check(a, core.Granted)
	check(busy, core.Refused)
	check(c, core.Granted)
	if a.Fence != 0 && a.Fenced < 1 {
		b.Errorf("fence %d × %d", a.Fence, a.Fenced)
	}
	if a.Degraded {
		b.Skip("without its store this backend cannot speak for others than its own holders")
	}
	withHome := func(op, granted *core.Op) *core.Op { op.Home = granted.Home; return op }
	ext := withHome(on(core.Extend, "a", mine), a)
	foreign := withHome(on(core.Extend, "b", mine), a)
	absent := withHome(on(core.Release, "never", mine), a)
	refill := withHome(on(core.Refill, "a", mine), a)
	do(ext, foreign, absent, refill)
	check(ext, core.OK)
	check(foreign, core.Foreign)
	check(absent, core.Absent)
	check(refill, core.OK)
	if a.Fence != 0 && refill.Fenced > 0 && refill.Fence <= a.Fence {
		b.Errorf("refill starts at fence %d, the grant had %d", refill.Fence, a.Fence)
	}
	wrong := withHome(on(core.Release, "a", other), a)
	right := withHome(on(core.Release, "a", mine), a)
	free := withHome(on(core.Release, "b", other), c)
	do(wrong, right, free)
	check(wrong, core.Foreign)
	check(right, core.OK)
	check(free, core.OK)
}
