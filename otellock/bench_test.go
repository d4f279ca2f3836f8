package otellock

import (
	"context"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// The promise is 3 allocations and 1 µs an acquire and release with providers that do nothing, and 8 µs with the SDK.
func BenchmarkNoop(b *testing.B) {
	benchmark(b, tracenoop.NewTracerProvider(), metricnoop.NewMeterProvider())
}

func BenchmarkRecording(b *testing.B) {
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(discard{}))
	mp := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	benchmark(b, tp, mp)
}

func TestAllocationsWithoutSDK(t *testing.T) {
	tracer := New(WithTracerProvider(tracenoop.NewTracerProvider()), WithMeterProvider(metricnoop.NewMeterProvider()))
	parent := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled,
	}))
	for name, ctx := range map[string]context.Context{"alone": context.Background(), "in a trace": parent} {
		if n := testing.AllocsPerRun(1000, func() { once(tracer, ctx, nil) }); n > 3 {
			t.Errorf("%s: %v allocations an acquire and release", name, n)
		}
	}
}

func benchmark(b *testing.B, tp trace.TracerProvider, mp metric.MeterProvider) {
	locks, err := core.New(core.Local())
	if err != nil {
		b.Fatal(err)
	}
	defer locks.Close(b.Context())
	lease, err := locks.Acquire(b.Context(), "order:42")
	if err != nil {
		b.Fatal(err)
	}
	defer lease.Release(b.Context())
	tracer := New(WithTracerProvider(tp), WithMeterProvider(mp))
	once(tracer, context.Background(), lease)
	b.ReportAllocs()
	for b.Loop() {
		once(tracer, context.Background(), lease)
	}
}

// once is an acquire and release, each in one trip, as the engine tells it.
func once(t core.Tracer, ctx context.Context, lease *core.Lease) {
	start := order("order:42")
	start.Wait = 0
	held := core.HoldStart{Backend: start.Backend, Key: start.Key}
	trip := t.AcquireStart(ctx, start)
	t.HoldStart(held)
	mark := t.AcquireEnd(trip, core.AcquireEnd{AcquireStart: start, Outcome: core.OutcomeAcquired, Waited: time.Millisecond,
		InBackend: time.Millisecond, Attempts: 1, Lease: lease})
	release := core.ReleaseStart{Backend: start.Backend, Key: start.Key, Mark: mark}
	trip = t.ReleaseStart(ctx, release)
	t.ReleaseEnd(trip, core.ReleaseEnd{ReleaseStart: release})
	t.HoldEnd(core.HoldEnd{HoldStart: held, Mark: mark, Held: time.Millisecond, Cause: core.ErrReleased})
}

// discard takes spans as a batching exporter does, and drops them.
type discard struct{}

func (discard) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (discard) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (discard) Shutdown(context.Context) error                  { return nil }
func (discard) ForceFlush(context.Context) error                { return nil }
