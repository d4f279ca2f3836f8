package otellock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/fallback"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// These tests run the engine itself, over the Backend of this process.

func (l *lab) locks(b core.Backend, opts ...core.Option) *core.Locks {
	l.t.Helper()
	locks, err := core.New(b, append([]core.Option{core.WithTracer(l.Tracer)}, opts...)...)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		locks.Close(ctx)
	})
	return locks
}

// quiet fails unless nothing is held and nobody waits any more.
func (l *lab) quiet() {
	l.t.Helper()
	for _, name := range []string{"latchkit.held", "latchkit.waiting"} {
		if n, _ := l.sum(name); n != 0 {
			l.t.Errorf("%s is %d at the end", name, n)
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 10 s", what)
		}
	}
}

func mustAcquire(t *testing.T, locks core.Locker, ctx context.Context, key string, opts ...core.Option) *core.Lease {
	t.Helper()
	lease, err := locks.Acquire(ctx, key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// waiter starts an Acquire that waits for ever, and returns once it does.
func (l *lab) waiter(locks core.Locker, ctx context.Context, key string) <-chan error {
	l.t.Helper()
	done := make(chan error, 1)
	go func() {
		done <- core.Do(ctx, locks, key, func(context.Context) error { return nil }, core.WithWait(core.Forever))
	}()
	eventually(l.t, "a waiter", func() bool { n, _ := l.sum("latchkit.waiting"); return n == 1 })
	return done
}

func TestEngineOneLock(t *testing.T) {
	l := newLab(t)
	locks := l.locks(core.Local())
	ctx, request := l.tp.Tracer("test").Start(context.Background(), "request")
	lease := mustAcquire(t, locks, ctx, "order:42")

	_, work := l.tp.Tracer("test").Start(lease.Context(), "work")
	work.End()
	if err := lease.Release(ctx); err != nil {
		t.Fatal(err)
	}
	request.End()

	acquire := l.span("lock.acquire")
	for _, name := range []string{"lock.acquire", "lock.release", "work"} {
		if s := l.span(name); s.Parent().SpanID() != request.SpanContext().SpanID() {
			t.Errorf("%s is no child of the request", name)
		}
	}
	has(t, acquire, attrBackend.String("local"), attrOutcome.String("acquired"),
		attrFence.Int64(lease.Fence()), attrTTL.Float64(30))
	hasNot(t, acquire, attrAttempts, attrFair, attrMaxWait, attrDegraded)
	linked(t, l.span("lock.release"), linkAcquire, acquire.SpanContext())
	if n, _ := l.records("latchkit.hold.duration", attrEnd.String("released")); n != 1 {
		t.Errorf("%d holds", n)
	}
	l.quiet()
}

func TestEngineContended(t *testing.T) {
	l := newLab(t)
	locks := l.locks(core.Local())
	ctx := context.Background()
	lease := mustAcquire(t, locks, ctx, "k")
	by := l.span("lock.acquire").SpanContext()

	if _, err := locks.Acquire(ctx, "k"); !errors.Is(err, core.ErrNotAcquired) {
		t.Fatal(err)
	}
	if _, err := locks.Acquire(ctx, "k", core.WithWait(20*time.Millisecond)); !errors.Is(err, core.ErrNotAcquired) {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(ctx)
	done := l.waiter(locks, canceled, "k")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}

	outcomes := []core.Outcome{core.OutcomeAcquired, core.OutcomeContended, core.OutcomeTimeout, core.OutcomeCanceled}
	for i, s := range l.named("lock.acquire") {
		has(t, s, attrOutcome.String(string(outcomes[i])))
		if s.Status().Code != codes.Unset {
			t.Errorf("%s: status %v", outcomes[i], s.Status())
		}
		if i > 0 {
			linked(t, s, linkHolder, by)
		}
	}
	if n, _ := l.sum("latchkit.contentions"); n != 3 {
		t.Errorf("%d contentions, want 3", n)
	}
	if _, waited := l.records("latchkit.acquire.duration", attrOutcome.String("timeout")); waited < .02 {
		t.Errorf("waited %v s", waited)
	}
	lease.Release(ctx)
	l.quiet()
}

func TestEngineWaitThatIsServed(t *testing.T) {
	l := newLab(t)
	locks := l.locks(core.Local())
	ctx := context.Background()
	lease := mustAcquire(t, locks, ctx, "k")
	served := l.waiter(locks, ctx, "k")
	lease.Release(ctx)
	if err := <-served; err != nil {
		t.Fatal(err)
	}

	s := l.named("lock.acquire")[1]
	has(t, s, attrOutcome.String("acquired"))
	hasNot(t, s, attrMaxWait)
	waited, _ := value(s, attrWaited)
	gate, _ := value(s, attrWaitedGate)
	holder, _ := value(s, attrWaitedHolder)
	if parts := gate.AsFloat64() + holder.AsFloat64(); parts <= 0 || parts > waited.AsFloat64() {
		t.Errorf("waited %v s, of that %v", waited.AsFloat64(), parts)
	}
	if e := s.Events(); len(e) != 2 {
		t.Errorf("events %v", e)
	}
	if n, _ := l.sum("latchkit.contentions"); n != 1 {
		t.Errorf("%d contentions", n)
	}
	l.quiet()
}

func TestEngineReentry(t *testing.T) {
	l := newLab(t)
	locks := l.locks(core.Local())
	outer := mustAcquire(t, locks, context.Background(), "k")
	inner := mustAcquire(t, locks, outer.Context(), "k")
	has(t, l.named("lock.acquire")[1], attrReentry.Bool(true), attrFence.Int64(outer.Fence()))
	if n, _ := l.sum("latchkit.held"); n != 1 {
		t.Errorf("held %d by one caller", n)
	}
	inner.Release(context.Background())
	outer.Release(context.Background())
	if n := len(l.named("lock.release")); n != 1 {
		t.Errorf("%d releases", n)
	}
	l.quiet()
}

// T3.
func TestEnginePanicAndDoubleRelease(t *testing.T) {
	l := newLab(t)
	locks := l.locks(core.Local())
	func() {
		defer func() { recover() }()
		core.Do(context.Background(), locks, "k", func(context.Context) error { panic("boom") })
	}()
	l.quiet()
	lease := mustAcquire(t, locks, context.Background(), "k")
	lease.Release(context.Background())
	if err := lease.Release(context.Background()); !errors.Is(err, core.ErrNotHeld) {
		t.Error(err)
	}
	l.quiet()
	if n, _ := l.records("latchkit.hold.duration"); n != 2 {
		t.Errorf("%d holds", n)
	}
}

// T5.
func TestEngineLoss(t *testing.T) {
	l := newLab(t)
	locks := l.locks(core.Local())
	lease := mustAcquire(t, locks, context.Background(), "k", core.WithTTL(20*time.Millisecond), core.WithoutRenewal())
	<-lease.Context().Done()
	eventually(t, "the loss", func() bool { n, _ := l.sum("latchkit.lost", attrReason.String("expired")); return n == 1 })
	if err := lease.Release(context.Background()); !errors.Is(err, core.ErrLost) {
		t.Error(err)
	}
	if n, _ := l.sum("latchkit.lost"); n != 1 {
		t.Errorf("lost %d", n)
	}

	forced := mustAcquire(t, locks, context.Background(), "forced")
	if err := locks.ForceRelease(context.Background(), "forced"); err != nil {
		t.Fatal(err)
	}
	<-forced.Context().Done()
	eventually(t, "the loss", func() bool { n, _ := l.sum("latchkit.lost", attrReason.String("forced")); return n == 1 })
	l.quiet()
}

// faulty is a Backend that cannot be reached while down.
type faulty struct {
	core.Backend
	down atomic.Bool
}

func (f *faulty) Do(ctx context.Context, ops []*core.Op) {
	if !f.down.Load() {
		f.Backend.Do(ctx, ops)
		return
	}
	for _, op := range ops {
		op.Err, op.Unsent = fmt.Errorf("%w: owner %s of %q", core.ErrUnavailable, op.Owner, op.Key), true
	}
}

func TestEngineOutage(t *testing.T) {
	l := newLab(t)
	b := &faulty{Backend: core.Local()}
	locks := l.locks(b)
	ctx, request := l.tp.Tracer("test").Start(context.Background(), "request")
	lease := mustAcquire(t, locks, ctx, "k", core.WithTTL(300*time.Millisecond))
	first := l.span("lock.acquire").SpanContext()
	eventually(t, "a renewal", func() bool { n, _ := l.records("latchkit.renewal.slack_ratio"); return n > 0 })

	b.down.Store(true)
	if _, err := locks.Acquire(ctx, "other"); !errors.Is(err, core.ErrUnavailable) {
		t.Fatal(err)
	}
	s := l.named("lock.acquire")[1]
	has(t, s, attrOutcome.String("error"), attrErrorType.String("unavailable"))
	if s.Status().Code != codes.Error || s.Status().Description != core.ErrUnavailable.Error() {
		t.Errorf("status %v", s.Status())
	}

	<-lease.Context().Done()
	eventually(t, "the loss", func() bool { n, _ := l.sum("latchkit.lost", attrReason.String("unavailable")); return n == 1 })
	renewals := l.named("lock.renew")
	if n, _ := l.sum("latchkit.renewal.failures", attrErrorType.String("unavailable")); n == 0 || int(n) != len(renewals) {
		t.Errorf("%d failures, %d spans", n, len(renewals))
	}
	for _, r := range renewals {
		linked(t, r, linkAcquire, first)
		if r.Parent().IsValid() || r.Status().Code != codes.Error {
			t.Errorf("parent %v, status %v", r.Parent(), r.Status())
		}
	}
	b.down.Store(false)
	lease.Release(ctx)
	request.End()
	l.quiet()
}

func TestEngineFallback(t *testing.T) {
	l := newLab(t)
	b := &faulty{Backend: core.Local()}
	locks := l.locks(fallback.Wrap(b, fallback.WithLogger(slog.New(slog.DiscardHandler))))
	mustAcquire(t, locks, context.Background(), "before").Release(context.Background())
	b.down.Store(true)
	var lease *core.Lease
	eventually(t, "the breaker to open", func() (ok bool) {
		var err error
		lease, err = locks.Acquire(context.Background(), "k")
		return err == nil
	})
	all := l.named("lock.acquire")
	s := all[len(all)-1]
	has(t, s, attrOutcome.String("acquired"), attrDegraded.Bool(true), attrFence.Int64(0))
	if s.Status().Code != codes.Unset {
		t.Errorf("status %v: a fallback is no error", s.Status())
	}
	if n, _ := l.sum("latchkit.fallback.grants", attrBackend.String("local"), attrReason.String("open")); n != 1 {
		t.Errorf("%d grants", n)
	}
	eventually(t, "the breaker's word", func() bool { n, _ := l.sum("latchkit.breaker.state", attrState.String("open")); return n == 1 })
	if n, _ := l.sum("latchkit.breaker.transitions", attrFrom.String("closed"), attrTo.String("open")); n != 1 {
		t.Errorf("%d transitions", n)
	}
	lease.Release(context.Background())
	l.quiet()
}

// The context with the acquire's span reaches the backend, so that its commands are children of the acquire.
func TestEngineTripsRunUnderTheSpan(t *testing.T) {
	l := newLab(t)
	b := &watching{Backend: core.Local()}
	lease := mustAcquire(t, l.locks(b), context.Background(), "k")
	lease.Release(context.Background())
	for _, name := range []string{"lock.acquire", "lock.release"} {
		if id := l.span(name).SpanContext().SpanID(); !b.saw(id) {
			t.Errorf("no trip under %s", name)
		}
	}
}

type watching struct {
	core.Backend
	mu  sync.Mutex
	ids []trace.SpanID
}

func (w *watching) Do(ctx context.Context, ops []*core.Op) {
	w.mu.Lock()
	w.ids = append(w.ids, trace.SpanContextFromContext(ctx).SpanID())
	w.mu.Unlock()
	w.Backend.Do(ctx, ops)
}

func (w *watching) saw(id trace.SpanID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, seen := range w.ids {
		if seen == id {
			return true
		}
	}
	return false
}

func TestEngineUnderLoad(t *testing.T) {
	l := newLab(t, WithHolderLink())
	locks := l.locks(core.Local())
	var all sync.WaitGroup
	for g := range 16 {
		all.Go(func() {
			for i := range 30 {
				core.Do(context.Background(), locks, fmt.Sprint(i%3), func(context.Context) error { return nil },
					core.WithWait(time.Duration(g%4)*time.Second))
			}
		})
	}
	all.Wait()
	if n, _ := l.records("latchkit.acquire.duration"); n != 480 {
		t.Errorf("%d acquires", n)
	}
	acquired, _ := l.records("latchkit.acquire.duration", attrOutcome.String("acquired"))
	if holds, _ := l.records("latchkit.hold.duration"); holds != acquired {
		t.Errorf("%d holds of %d acquired", holds, acquired)
	}
	if n := len(l.named("lock.release")); n != int(acquired) {
		t.Errorf("%d releases of %d acquired", n, acquired)
	}
	l.quiet()
}
