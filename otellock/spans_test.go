package otellock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

func TestSpansOfALock(t *testing.T) {
	l := newLab(t, WithName(func(string) string { return "order" }), WithSpanAttributes(attribute.String("team", "shop")))
	ctx, request := l.tp.Tracer("test").Start(context.Background(), "POST /orders")
	start := order("order:42")
	start.Kind, start.Fair = core.Shared, true

	p := begin(l, ctx, start).wait().acquired(core.AcquireEnd{
		Attempts: 3, Waited: 600 * time.Millisecond,
		InGate: 100 * time.Millisecond, InBackend: 200 * time.Millisecond, ForHolder: 300 * time.Millisecond,
	})
	p.release(ctx, nil)
	request.End()

	acquire, release := l.span("lock.acquire"), l.span("lock.release")
	for _, s := range []sdktrace.ReadOnlySpan{acquire, release} {
		if s.Parent().SpanID() != request.SpanContext().SpanID() {
			t.Errorf("%s is no child of the request", s.Name())
		}
		if s.SpanKind() != trace.SpanKindInternal || s.Status().Code != codes.Unset {
			t.Errorf("%s: kind %v, status %v", s.Name(), s.SpanKind(), s.Status())
		}
		has(t, s, attrBackend.String("redis"), attrKind.String("shared"), attrName.String("order"), attribute.String("team", "shop"))
		hasNot(t, s, attrKey, attrErrorType)
	}
	has(t, acquire, attrTTL.Float64(30), attrFair.Bool(true), attrOutcome.String("acquired"), attrAttempts.Int(3),
		attrMaxWait.Float64(2), attrWaited.Float64(.6), attrWaitedGate.Float64(.1), attrWaitedBackend.Float64(.2), attrWaitedHolder.Float64(.3))
	hasNot(t, acquire, attrReentry, attrHandOff, attrCompleted)
	if e := acquire.Events(); len(e) != 2 || e[0].Name != eventWaitStart || e[1].Name != eventWaitEnd {
		t.Errorf("events %v", e)
	}
	linked(t, release, linkAcquire, acquire.SpanContext())
}

// linked fails unless the only link of s is that one.
func linked(t *testing.T, s sdktrace.ReadOnlySpan, relation string, to trace.SpanContext) {
	t.Helper()
	links := s.Links()
	if len(links) != 1 || links[0].SpanContext.SpanID() != to.SpanID() || links[0].SpanContext.TraceID() != to.TraceID() {
		t.Fatalf("%s: links %v, want one to %v", s.Name(), links, to.SpanID())
	}
	if a := links[0].Attributes; len(a) != 1 || a[0] != attrLink.String(relation) {
		t.Errorf("%s: link attributes %v, want %s", s.Name(), a, relation)
	}
}

func TestOutcomes(t *testing.T) {
	busy := &core.NotAcquiredError{Key: "order:42"}
	for _, c := range []struct {
		outcome core.Outcome
		err     error
		status  codes.Code
		typ     string
	}{
		{core.OutcomeContended, busy, codes.Unset, ""},
		{core.OutcomeTimeout, busy, codes.Unset, ""},
		{core.OutcomeTimeout, context.DeadlineExceeded, codes.Unset, ""},
		{core.OutcomeCanceled, context.Canceled, codes.Unset, ""},
		{core.OutcomeError, fmt.Errorf("x: %w", core.ErrUnavailable), codes.Error, "unavailable"},
		{core.OutcomeError, core.ErrClosed, codes.Error, "closed"},
		{core.OutcomeError, fmt.Errorf("%w: %w", core.ErrLost, core.ErrUnavailable), codes.Error, "lost"},
		{core.OutcomeError, core.ErrTooManyWaiters, codes.Error, "too_many_waiters"},
		{core.OutcomeError, core.ErrConflict, codes.Error, "conflict"},
		{core.OutcomeError, core.ErrDenied, codes.Error, "denied"},
		{core.OutcomeError, errors.New("never seen"), codes.Error, other},
	} {
		t.Run(fmt.Sprint(c.outcome, " ", c.err), func(t *testing.T) {
			l := newLab(t)
			begin(l, context.Background(), order("order:42")).failed(core.AcquireEnd{Outcome: c.outcome, Err: c.err})
			s := l.span("lock.acquire")
			has(t, s, attrOutcome.String(string(c.outcome)))
			hasNot(t, s, attrFence, attrDegraded)
			if s.Status().Code != c.status {
				t.Errorf("status %v, want %v", s.Status(), c.status)
			}
			if c.typ == "" {
				hasNot(t, s, attrErrorType)
			} else {
				has(t, s, attrErrorType.String(c.typ))
			}
			if n, _ := l.records("latchkit.acquire.duration", attrOutcome.String(string(c.outcome))); n != 1 {
				t.Errorf("%d durations with that outcome", n)
			}
			if held, _ := l.sum("latchkit.held"); held != 0 {
				t.Errorf("held %d", held)
			}
		})
	}
}

func TestCooldownIsTold(t *testing.T) {
	l := newLab(t)
	begin(l, context.Background(), order("k")).failed(core.AcquireEnd{
		Outcome: core.OutcomeContended, Err: &core.NotAcquiredError{Key: "k", Completed: true},
	})
	has(t, l.span("lock.acquire"), attrCompleted.Bool(true))
}

func TestReleaseOfALostLockIsAnError(t *testing.T) {
	l := newLab(t)
	begin(l, context.Background(), order("k")).acquired(core.AcquireEnd{}).release(context.Background(), core.ErrLost)
	s := l.span("lock.release")
	has(t, s, attrErrorType.String("lost"))
	if s.Status().Code != codes.Error {
		t.Errorf("status %v", s.Status())
	}
}

func TestRenewals(t *testing.T) {
	l := newLab(t)
	ctx, request := l.tp.Tracer("test").Start(context.Background(), "request")
	p := begin(l, ctx, order("k")).acquired(core.AcquireEnd{})
	request.End()
	renewal := core.Renewal{Backend: "redis", Key: "k", Mark: p.mark, TTL: 30 * time.Second, Slack: 20 * time.Second, Took: time.Second}
	l.Renewed(renewal)
	if len(l.named("lock.renew")) != 0 {
		t.Error("a successful renewal has a span")
	}
	if n, sum := l.records("latchkit.renewal.slack"); n != 1 || sum != 20 {
		t.Errorf("slack: %d records, sum %v", n, sum)
	}
	if n, sum := l.records("latchkit.renewal.slack_ratio"); n != 1 || sum < .66 || sum > .67 {
		t.Errorf("slack ratio: %d records, sum %v", n, sum)
	}

	renewal.Err = fmt.Errorf("x: %w", core.ErrUnavailable)
	l.Renewed(renewal)
	s := l.span("lock.renew")
	if s.Parent().IsValid() || s.Status().Code != codes.Error {
		t.Errorf("parent %v, status %v", s.Parent(), s.Status())
	}
	if d := s.EndTime().Sub(s.StartTime()); d != time.Second {
		t.Errorf("took %v", d)
	}
	linked(t, s, linkAcquire, l.span("lock.acquire").SpanContext())
	has(t, s, attrErrorType.String("unavailable"), attrSlack.Float64(20), attrTTL.Float64(30))
	if n, _ := l.sum("latchkit.renewal.failures", attrErrorType.String("unavailable")); n != 1 {
		t.Errorf("%d failures", n)
	}
	if n, _ := l.records("latchkit.renewal.slack"); n != 1 {
		t.Error("a failed renewal counts as slack")
	}
}

func TestHolderLink(t *testing.T) {
	l := newLab(t, WithHolderLink())
	p := begin(l, context.Background(), order("k"))
	note := l.Note(p.ctx)
	p.acquired(core.AcquireEnd{})
	by := l.span("lock.acquire").SpanContext()
	if len(note) == 0 || len(note) > 128 {
		t.Fatalf("a note of %d bytes", len(note))
	}
	for name, e := range map[string]core.AcquireEnd{
		"in this process": {HolderMark: p.mark},
		"elsewhere":       {HolderNote: note},
	} {
		t.Run(name, func(t *testing.T) {
			other := newLab(t)
			e.Outcome = core.OutcomeContended
			begin(other, context.Background(), order("k")).failed(e)
			linked(t, other.span("lock.acquire"), linkHolder, by)
		})
	}
}

func TestNotesThatAreNone(t *testing.T) {
	l := newLab(t)
	if note := l.Note(begin(l, context.Background(), order("k")).ctx); note != "" {
		t.Errorf("note %q without WithHolderLink", note)
	}
	asked := newLab(t, WithHolderLink())
	unsampled := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1},
	}))
	if note := asked.Note(unsampled); note != "" {
		t.Errorf("note %q of a span that nobody will find", note)
	}
	for _, note := range []string{"", "x", "00-00000000000000000000000000000000-0000000000000000-01", strings.Repeat("0", 128), "\xff\x00"} {
		if sc := noted(note); sc.IsValid() {
			t.Errorf("%q gives %v", note, sc)
		}
	}
}

func TestKeysOnSpansOnlyWhenAskedFor(t *testing.T) {
	l := newLab(t, WithKeyAttribute(func(key string) string { return key + "!" }))
	p := begin(l, context.Background(), order("a\xffb")).acquired(core.AcquireEnd{})
	l.Renewed(core.Renewal{Backend: "redis", Key: "a\xffb", Mark: p.mark, Err: core.ErrLost})
	p.release(context.Background(), nil)
	for _, name := range []string{"lock.acquire", "lock.renew", "lock.release"} {
		has(t, l.span(name), attrKey.String("a\uFFFDb!")) // OTLP allows no other bytes
	}
	long := newLab(t, WithKeyAttribute(func(key string) string { return key }))
	begin(long, context.Background(), order(strings.Repeat("k", 10_000))).failed(core.AcquireEnd{Outcome: core.OutcomeContended})
	if v, _ := value(long.span("lock.acquire"), attrKey); len(v.AsString()) != maxKey {
		t.Errorf("a key of %d bytes", len(v.AsString()))
	}
	none := newLab(t, WithKeyAttribute(func(string) string { return "" }))
	begin(none, context.Background(), order("k")).failed(core.AcquireEnd{Outcome: core.OutcomeContended})
	hasNot(t, none.span("lock.acquire"), attrKey)
}

func TestSamplersSeeTheStart(t *testing.T) {
	seen := make(chan []attribute.KeyValue, 1)
	tp := sdktrace.NewTracerProvider(sdktrace.WithSampler(samplerFunc(func(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
		seen <- p.Attributes
		return sdktrace.SamplingResult{Decision: sdktrace.Drop}
	})))
	tracer := New(WithTracerProvider(tp), WithKeyAttribute(func(key string) string { return key }))
	p := begin(tracer, context.Background(), order("order:42")).acquired(core.AcquireEnd{})
	set := attribute.NewSet(<-seen...)
	for _, want := range []attribute.KeyValue{
		attrBackend.String("redis"), attrKind.String("exclusive"), attrTTL.Float64(30), attrName.String("unnamed"), attrKey.String("order:42"),
	} {
		if got, _ := set.Value(want.Key); got != want.Value {
			t.Errorf("%s = %v at the start", want.Key, got.String())
		}
	}
	go func() { <-seen }()
	p.release(context.Background(), nil) // an acquire that was not sampled is followed by a release that is asked about
}

type samplerFunc func(sdktrace.SamplingParameters) sdktrace.SamplingResult

func (f samplerFunc) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult { return f(p) }
func (samplerFunc) Description() string                                                  { return "test" }

func TestFilterLeavesOutSpansOnly(t *testing.T) {
	l := newLab(t,
		WithFilter(func(_ context.Context, e core.AcquireStart) bool { return !strings.HasPrefix(e.Key, "quiet") }),
		WithFilter(func(context.Context, core.AcquireStart) bool { return true }))
	ctx, request := l.tp.Tracer("test").Start(context.Background(), "request")
	p := begin(l, ctx, order("quiet:1")).wait().acquired(core.AcquireEnd{})
	if got := trace.SpanContextFromContext(p.ctx); !got.Equal(request.SpanContext()) {
		t.Error("the trips' span is not the caller's")
	}
	l.Renewed(core.Renewal{Backend: "redis", Key: "quiet:1", Mark: p.mark, Err: core.ErrUnavailable})
	p.release(ctx, nil)
	if ended := l.spans.Ended(); len(ended) != 0 {
		t.Fatalf("%d spans ended, the caller's perhaps", len(ended))
	}
	request.End()
	if n, _ := l.records("latchkit.acquire.duration"); n != 1 {
		t.Errorf("%d durations", n)
	}
	begin(l, ctx, order("loud:1")).acquired(core.AcquireEnd{}).release(ctx, nil)
	l.span("lock.acquire")
	l.span("lock.release")
}

// What a server says may hold the arguments of a command, and so the owner; what core says may hold the key.
func TestErrorTextsStayHome(t *testing.T) {
	secret := "0123456789abcdef0123456789abcdef"
	for _, c := range []struct {
		err  error
		want string
	}{
		{reply("ERR unknown command 'EVALSHA', with args beginning with: 'order:42' '" + secret + "'"), "latchkit: backend unavailable: ERR"},
		{reply("CLUSTERDOWN The cluster is down"), "latchkit: backend unavailable: CLUSTERDOWN"},
		{reply("order:42 " + secret), "latchkit: backend unavailable"},
		{&net.OpError{Op: "dial", Err: timeout{}}, "latchkit: backend unavailable: timeout"},
		{net.ErrClosed, "latchkit: backend unavailable: connection closed"},
		{errors.New("order:42 " + secret), "latchkit: backend unavailable"},
	} {
		l := newLab(t)
		err := fmt.Errorf("latchkit: acquire %q: %w: %w", "order:42", core.ErrUnavailable, c.err)
		begin(l, context.Background(), order("order:42")).failed(core.AcquireEnd{Outcome: core.OutcomeError, Err: err})
		if got := l.span("lock.acquire").Status().Description; got != c.want {
			t.Errorf("description %q, want %q", got, c.want)
		}
	}
}

type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

type timeout struct{}

func (timeout) Error() string   { return "i/o timeout" }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }
