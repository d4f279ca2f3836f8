package otellock

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/latchkit/latchkit/core"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Tracer turns what the engine does into spans and metrics: give it to core.WithTracer. It may be used by several
// engines, and by any number of goroutines. It keeps no goroutine, and needs no Close.
type Tracer struct {
	config
	instruments
	tracer trace.Tracer // nil: there are no spans

	series   cache[seriesID, *series]
	profiles cache[profileID, *profile]
	classes  cache[string, string]
	tooMany  sync.Once

	breakers    cache[nodeID, *breaker]
	clocks      cache[nodeID, *clock]
	grants      cache[grantID, *counter]
	otherGrants *counter
	zero        *counter
}

var (
	_ core.Tracer        = (*Tracer)(nil)
	_ core.Noter         = (*Tracer)(nil)
	_ core.BreakerTracer = (*Tracer)(nil)
	_ core.ClockTracer   = (*Tracer)(nil)
)

// New returns a Tracer; without options it uses the global providers, and shows no keys. A metric that the provider refuses
// is reported to otel.Handle and left out.
func New(opts ...Option) *Tracer {
	t := &Tracer{config: newConfig(opts)}
	t.classes.limit, t.profiles.limit = maxClasses, maxProfiles
	t.series.limit = math.MaxInt // bounded by the classes
	t.breakers.limit, t.clocks.limit, t.grants.limit = maxNodes, maxNodes, maxReasons
	t.zero = newCounter(t.metricAttributes)
	t.otherGrants = newCounter(t.metricAttributes)

	if _, silent := t.tracerProvider.(noop.TracerProvider); !silent {
		t.tracer = t.tracerProvider.Tracer(ScopeName, trace.WithInstrumentationVersion(Version))
	}
	meter := t.meterProvider.Meter(ScopeName, metric.WithInstrumentationVersion(Version))
	t.instruments = newInstruments(meter)
	t.observe(meter)
	return t
}

// acquiring is the context of an Acquire's trips, with what the Tracer knows of it.
type acquiring struct {
	context.Context
	*profile
	span      trace.Span // nil: there is none
	traced    bool       // the span is one of its own
	contended bool
}

type acquiringKey struct{}

// Value finds the acquiring itself below whatever the engine derived from it.
func (a *acquiring) Value(key any) any {
	if key == (acquiringKey{}) {
		return a
	}
	return a.Context.Value(key)
}

func acquiringOf(ctx context.Context) *acquiring {
	if a, ok := ctx.(*acquiring); ok {
		return a
	}
	a, _ := ctx.Value(acquiringKey{}).(*acquiring)
	return a
}

// hold is the mark of a lock that is held: what later events need of its acquire.
type hold struct {
	*profile
	span    trace.SpanContext // invalid: not traced, and neither is what follows
	sampled context.Context   // has the span, for exemplars; nil when it is not sampled
}

// context returns one for measurements about the hold.
func (h *hold) context() context.Context {
	if h == nil || h.sampled == nil {
		return context.Background()
	}
	return h.sampled
}

// AcquireStart implements core.Tracer.
func (t *Tracer) AcquireStart(ctx context.Context, e core.AcquireStart) context.Context {
	a := &acquiring{Context: ctx, profile: t.profileOf(&e)}
	if t.tracer == nil || !t.wanted(ctx, e) {
		return a
	}
	opts := a.acquire
	if key := t.keyOf(e.Key); key != "" {
		opts = append(opts[:len(opts):len(opts)], trace.WithAttributes(attrKey.String(key)))
	}
	a.Context, a.span = t.tracer.Start(ctx, spanAcquire, opts...)
	// Without an SDK a span is none, or the caller's under another name.
	span := a.span.SpanContext()
	a.traced = span.IsValid() && span.SpanID() != trace.SpanContextFromContext(ctx).SpanID()
	return a
}

// WaitStart implements core.Tracer.
func (t *Tracer) WaitStart(ctx context.Context, _ string) {
	a := acquiringOf(ctx)
	if a == nil {
		return
	}
	a.waiting.add(1)
	a.contended = true
	if a.span != nil && a.span.IsRecording() {
		a.span.AddEvent(eventWaitStart)
	}
}

// WaitEnd implements core.Tracer.
func (t *Tracer) WaitEnd(ctx context.Context, _ string) {
	a := acquiringOf(ctx)
	if a == nil {
		return
	}
	a.waiting.add(-1)
	if a.span != nil && a.span.IsRecording() {
		a.span.AddEvent(eventWaitEnd)
	}
}

// AcquireEnd implements core.Tracer.
func (t *Tracer) AcquireEnd(ctx context.Context, e core.AcquireEnd) any {
	a := acquiringOf(ctx)
	if a == nil {
		a = &acquiring{Context: ctx, profile: t.profileOf(&e.AcquireStart)}
	}
	if a.contended || e.Outcome == core.OutcomeContended || errors.Is(e.Err, core.ErrNotAcquired) {
		a.contentions.add(1)
	}
	t.acquireDuration.Record(ctx, e.Waited.Seconds(), a.acquired[e.Outcome]...)
	mark := a.mark()
	if a.span != nil {
		if a.span.IsRecording() {
			describe(a.span, &e)
		}
		a.span.End()
	}
	return mark
}

// mark returns what the engine keeps with the hold.
func (a *acquiring) mark() *hold {
	if !a.traced {
		return a.untraced
	}
	h := &hold{profile: a.profile, span: a.span.SpanContext()}
	if h.span.IsSampled() {
		h.sampled = trace.ContextWithSpanContext(context.Background(), h.span)
	}
	return h
}

// room is for the attributes of one description; a span copies what it is given.
type room [16]attribute.KeyValue

var rooms = sync.Pool{New: func() any { return new(room) }}

// describe puts the end of an Acquire on its span. What is as usual is left out: an SDK looks at each attribute several
// times, and the plain acquire has no more than eight, which fit into the smallest of Go's maps.
func describe(span trace.Span, e *core.AcquireEnd) {
	room := rooms.Get().(*room)
	defer rooms.Put(room)
	attributes := append(room[:0],
		attrOutcome.String(string(e.Outcome)),
		attrWaited.Float64(e.Waited.Seconds()),
	)
	if e.Attempts > 1 {
		attributes = append(attributes, attrAttempts.Int(e.Attempts))
	}
	for _, part := range [...]struct {
		key  attribute.Key
		time time.Duration
	}{{attrWaitedGate, e.InGate}, {attrWaitedBackend, e.InBackend}, {attrWaitedHolder, e.ForHolder}} {
		if part.time > 0 {
			attributes = append(attributes, part.key.Float64(part.time.Seconds()))
		}
	}
	if e.Wait > 0 && e.Wait != core.Forever {
		attributes = append(attributes, attrMaxWait.Float64(e.Wait.Seconds()))
	}
	if e.Lease != nil {
		attributes = append(attributes, attrFence.Int64(e.Lease.Fence()))
		if e.Lease.Degraded() {
			attributes = append(attributes, attrDegraded.Bool(true))
		}
	}
	if e.Reentry {
		attributes = append(attributes, attrReentry.Bool(true))
	}
	if e.HandOff {
		attributes = append(attributes, attrHandOff.Bool(true))
	}
	if refused, ok := errors.AsType[*core.NotAcquiredError](e.Err); ok && refused.Completed {
		attributes = append(attributes, attrCompleted.Bool(true))
	}
	if e.Outcome == core.OutcomeError {
		attributes = append(attributes, fail(span, e.Err))
	}
	span.SetAttributes(attributes...)
	if by := holder(e.HolderMark, e.HolderNote); by.IsValid() {
		span.AddLink(trace.Link{SpanContext: by, Attributes: []attribute.KeyValue{attrLink.String(linkHolder)}})
	}
}

// fail sets the span's status to Error and returns its error.type.
func fail(span trace.Span, err error) attribute.KeyValue {
	word, description := failure(err)
	span.SetStatus(codes.Error, description)
	return attrErrorType.String(word)
}

// HoldStart implements core.Tracer.
func (t *Tracer) HoldStart(e core.HoldStart) {
	t.seriesOf(e.Backend, e.Kind, t.class(e.Key)).held.add(1)
	if e.Degraded {
		t.degraded(e.Backend, e.DegradedReason)
	}
}

// HoldEnd implements core.Tracer.
func (t *Tracer) HoldEnd(e core.HoldEnd) {
	s := t.seriesOf(e.Backend, e.Kind, t.class(e.Key))
	s.held.add(-1)
	end := endOf(e.Cause)
	if end == endLost {
		s.lost.of(e.Reason).add(1)
	}
	h, _ := e.Mark.(*hold)
	t.holdDuration.Record(h.context(), e.Held.Seconds(), s.ended[end]...)
	if h != nil && h.ttl > 0 {
		t.holdRatio.Record(h.context(), e.Held.Seconds()/h.ttl.Seconds(), s.ended[end]...)
	}
}

// ReleaseStart implements core.Tracer.
func (t *Tracer) ReleaseStart(ctx context.Context, e core.ReleaseStart) context.Context {
	h, _ := e.Mark.(*hold)
	if h == nil || !h.span.IsValid() {
		return ctx
	}
	ctx, _ = t.tracer.Start(ctx, spanRelease, t.follow(h, h.release, e.Key)...)
	return ctx
}

// ReleaseEnd implements core.Tracer.
func (t *Tracer) ReleaseEnd(ctx context.Context, e core.ReleaseEnd) {
	h, _ := e.Mark.(*hold)
	if h == nil || !h.span.IsValid() {
		return // ReleaseStart has made no span: the one in ctx is the caller's
	}
	span := trace.SpanFromContext(ctx)
	defer span.End()
	if !span.IsRecording() {
		return
	}
	if e.HandOff {
		span.SetAttributes(attrHandOff.Bool(true))
	}
	if e.Err != nil {
		span.SetAttributes(fail(span, e.Err))
	}
}

// toAcquire is the same on every link; nobody writes to it.
var toAcquire = []attribute.KeyValue{attrLink.String(linkAcquire)}

// follow returns opts for a span that follows the acquire of h, linked to it.
func (t *Tracer) follow(h *hold, opts []trace.SpanStartOption, key string) []trace.SpanStartOption {
	link := trace.Link{SpanContext: h.span, Attributes: toAcquire}
	opts = append(opts[:len(opts):len(opts)], trace.WithLinks(link))
	if shown := t.keyOf(key); shown != "" {
		opts = append(opts, trace.WithAttributes(attrKey.String(shown)))
	}
	return opts
}

// Renewed implements core.Tracer.
func (t *Tracer) Renewed(e core.Renewal) {
	h, _ := e.Mark.(*hold)
	s := t.seriesOf(e.Backend, e.Kind, t.class(e.Key))
	if e.Err == nil {
		t.renewalSlack.Record(h.context(), e.Slack.Seconds(), s.renewed...)
		if e.TTL > 0 {
			t.slackRatio.Record(h.context(), e.Slack.Seconds()/e.TTL.Seconds(), s.renewed...)
		}
		return
	}
	word, _ := failure(e.Err)
	s.renewalFailures.of(word).add(1)
	if h != nil && h.span.IsValid() {
		t.failedRenewal(h, e)
	}
}

// failedRenewal makes the span of a renewal that is over. It is the root of a trace of its own: the request that took
// the lock may have ended long ago.
func (t *Tracer) failedRenewal(h *hold, e core.Renewal) {
	end := time.Now()
	opts := append(t.follow(h, h.release, e.Key), trace.WithNewRoot(), trace.WithTimestamp(end.Add(-e.Took)))
	_, span := t.tracer.Start(context.Background(), spanRenew, opts...)
	if span.IsRecording() {
		span.SetAttributes(attrTTL.Float64(e.TTL.Seconds()), attrSlack.Float64(max(0, e.Slack).Seconds()), fail(span, e.Err))
	}
	span.End(trace.WithTimestamp(end))
}
