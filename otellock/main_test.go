package otellock

import (
	"context"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lab is a Tracer whose spans and metrics a test can read.
type lab struct {
	*Tracer
	t      *testing.T
	spans  *tracetest.SpanRecorder
	reader *sdkmetric.ManualReader
	tp     *sdktrace.TracerProvider
}

func newLab(t *testing.T, opts ...Option) *lab {
	l := &lab{t: t, spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	l.tp = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(l.spans))
	mp := sdkmetric.NewMeterProvider(sdkmetric.WithReader(l.reader))
	l.Tracer = New(append([]Option{WithTracerProvider(l.tp), WithMeterProvider(mp)}, opts...)...)
	return l
}

// pass is one pass of a lock through the Tracer, told in the order in which the engine tells it.
type pass struct {
	tracer core.Tracer
	start  core.AcquireStart
	ctx    context.Context
	mark   any
	held   core.HoldStart
}

func begin(t core.Tracer, ctx context.Context, start core.AcquireStart) *pass {
	return &pass{tracer: t, start: start, ctx: t.AcquireStart(ctx, start)}
}

func (p *pass) wait() *pass {
	p.tracer.WaitStart(p.ctx, p.start.Key)
	p.tracer.WaitEnd(p.ctx, p.start.Key)
	return p
}

func (p *pass) acquired(e core.AcquireEnd) *pass {
	e.AcquireStart, e.Outcome = p.start, core.OutcomeAcquired
	p.held.Backend, p.held.Key, p.held.Kind = p.start.Backend, p.start.Key, p.start.Kind
	p.tracer.HoldStart(p.held)
	p.mark = p.tracer.AcquireEnd(p.ctx, e)
	return p
}

func (p *pass) failed(e core.AcquireEnd) {
	e.AcquireStart = p.start
	p.tracer.AcquireEnd(p.ctx, e)
}

func (p *pass) release(ctx context.Context, err error) {
	r := core.ReleaseStart{Backend: p.start.Backend, Key: p.start.Key, Kind: p.start.Kind, Mark: p.mark}
	rctx := p.tracer.ReleaseStart(ctx, r)
	p.tracer.ReleaseEnd(rctx, core.ReleaseEnd{ReleaseStart: r, Err: err})
	p.end(core.ErrReleased, "")
}

func (p *pass) end(cause error, reason string) {
	p.tracer.HoldEnd(core.HoldEnd{HoldStart: p.held, Mark: p.mark, Held: 20 * time.Millisecond, Cause: cause, Reason: reason})
}

// order is an Acquire as most tests make it.
func order(key string) core.AcquireStart {
	return core.AcquireStart{Backend: "redis", Key: key, TTL: 30 * time.Second, Wait: 2 * time.Second}
}

// span returns the only ended span of that name.
func (l *lab) span(name string) sdktrace.ReadOnlySpan {
	l.t.Helper()
	all := l.named(name)
	if len(all) != 1 {
		l.t.Fatalf("%d spans %q ended, want 1", len(all), name)
	}
	return all[0]
}

func (l *lab) named(name string) (found []sdktrace.ReadOnlySpan) {
	for _, s := range l.spans.Ended() {
		if s.Name() == name {
			found = append(found, s)
		}
	}
	return found
}

func value(s sdktrace.ReadOnlySpan, key attribute.Key) (attribute.Value, bool) {
	for _, a := range s.Attributes() {
		if a.Key == key {
			return a.Value, true
		}
	}
	return attribute.Value{}, false
}

// has fails unless the span has every attribute of want.
func has(t *testing.T, s sdktrace.ReadOnlySpan, want ...attribute.KeyValue) {
	t.Helper()
	for _, w := range want {
		if got, ok := value(s, w.Key); !ok || got != w.Value {
			t.Errorf("%s: %s = %v (there: %v), want %v", s.Name(), w.Key, got.String(), ok, w.Value.String())
		}
	}
}

// hasNot fails if the span has one of keys.
func hasNot(t *testing.T, s sdktrace.ReadOnlySpan, keys ...attribute.Key) {
	t.Helper()
	for _, k := range keys {
		if got, ok := value(s, k); ok {
			t.Errorf("%s: %s = %v, want none", s.Name(), k, got.String())
		}
	}
}

// collect returns the metrics by name.
func (l *lab) collect() map[string]metricdata.Aggregation {
	l.t.Helper()
	var all metricdata.ResourceMetrics
	if err := l.reader.Collect(context.Background(), &all); err != nil {
		l.t.Fatal(err)
	}
	byName := make(map[string]metricdata.Aggregation)
	for _, scope := range all.ScopeMetrics {
		if scope.Scope.Name != ScopeName || scope.Scope.Version != Version {
			l.t.Errorf("scope %q %q", scope.Scope.Name, scope.Scope.Version)
		}
		for _, m := range scope.Metrics {
			byName[m.Name] = m.Data
		}
	}
	return byName
}

// sum adds up the points of a counter that have all of want; points is how many there are.
func (l *lab) sum(name string, want ...attribute.KeyValue) (total int64, points int) {
	l.t.Helper()
	data, ok := l.collect()[name].(metricdata.Sum[int64])
	if !ok {
		l.t.Fatalf("%s is no sum of int64", name)
	}
	for _, p := range data.DataPoints {
		if matches(p.Attributes, want) {
			total, points = total+p.Value, points+1
		}
	}
	return total, points
}

// records returns how many measurements with all of want a histogram holds, and their sum.
func (l *lab) records(name string, want ...attribute.KeyValue) (count uint64, sum float64) {
	l.t.Helper()
	data, ok := l.collect()[name].(metricdata.Histogram[float64])
	if !ok {
		return 0, 0
	}
	for _, p := range data.DataPoints {
		if matches(p.Attributes, want) {
			count, sum = count+p.Count, sum+p.Sum
		}
	}
	return count, sum
}

func matches(set attribute.Set, want []attribute.KeyValue) bool {
	for _, w := range want {
		if got, ok := set.Value(w.Key); !ok || got != w.Value {
			return false
		}
	}
	return true
}
