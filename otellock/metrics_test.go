package otellock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

var counts = []string{
	"latchkit.contentions", "latchkit.lost", "latchkit.renewal.failures", "latchkit.held", "latchkit.waiting",
	"latchkit.fallback.grants", "latchkit.breaker.transitions",
}

// globals are the global providers, which can be installed once in a process.
var globals = sync.OnceValue(func() *lab {
	l := &lab{spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(l.spans)))
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(l.reader)))
	return l
})

// T1. The global providers may come after New, and after the first lock.
func TestNilProvidersMeanTheGlobals(t *testing.T) {
	tracer := New(nil, WithTracerProvider(nil), WithMeterProvider(nil), WithKeyAttribute(nil), WithName(nil), WithFilter(nil))
	early := begin(tracer, context.Background(), order("early")).acquired(core.AcquireEnd{})

	l := globals()
	l.t = t
	if held, _ := l.sum("latchkit.held"); held != 1 {
		t.Errorf("held %d of a lock from before", held)
	}
	early.release(context.Background(), nil)
	spans, holds := len(l.spans.Ended()), 0
	for range 2 {
		begin(tracer, context.Background(), order("late")).acquired(core.AcquireEnd{}).release(context.Background(), nil)
		n, _ := l.records("latchkit.hold.duration")
		holds = int(n) - holds
	}
	if held, _ := l.sum("latchkit.held"); held != 0 {
		t.Errorf("held %d", held)
	}
	if n := len(l.spans.Ended()) - spans; n != 4 || holds != 1 {
		t.Errorf("%d spans of two locks, %d holds of the second", n, holds)
	}
}

// T2.
func TestCountersAreZeroFromTheStart(t *testing.T) {
	l := newLab(t, WithMetricAttributes(attribute.String("team", "shop")))
	for _, name := range counts {
		if n, points := l.sum(name, attribute.String("team", "shop")); n != 0 || points != 1 {
			t.Errorf("%s: %d in %d points before first use, want 0 in 1", name, n, points)
		}
	}
	p := begin(l, context.Background(), order("k"))
	for _, name := range counts[:5] {
		if n, points := l.sum(name, attrBackend.String("redis")); n != 0 || points < 1 {
			t.Errorf("%s: %d in %d points of the first lock's series, want 0 in some", name, n, points)
		}
	}
	p.failed(core.AcquireEnd{Outcome: core.OutcomeCanceled})
}

// T3, of which the engine's part is that starts and ends come in pairs.
func TestHeldAndWaitingReturnToZero(t *testing.T) {
	l := newLab(t)
	p := begin(l, context.Background(), order("k"))
	l.WaitStart(p.ctx, "k")
	if n, _ := l.sum("latchkit.waiting"); n != 1 {
		t.Errorf("waiting %d", n)
	}
	type unrelated struct{}
	l.WaitEnd(context.WithValue(p.ctx, unrelated{}, 1), "k")
	p.acquired(core.AcquireEnd{})
	if n, _ := l.sum("latchkit.held"); n != 1 {
		t.Errorf("held %d", n)
	}
	p.release(context.Background(), nil)
	for _, name := range []string{"latchkit.held", "latchkit.waiting"} {
		if n, _ := l.sum(name); n != 0 {
			t.Errorf("%s %d at the end", name, n)
		}
	}
}

// T4: what is shared between goroutines is never written; -race tells.
func TestParallelLocksShareNoAttributes(t *testing.T) {
	shared := make([]attribute.KeyValue, 1, 16)
	shared[0] = attribute.String("z", "last, so that sorting would move it")
	l := newLab(t, WithSpanAttributes(shared...), WithMetricAttributes(shared...), WithHolderLink(),
		WithName(func(key string) string { return key[:1] }), WithKeyAttribute(func(key string) string { return key }))
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 50 {
				start := order(fmt.Sprintf("%d:%d", (g+i)%4, i))
				start.Kind, start.TTL = core.Kind(i%3), time.Duration(1+i%5)*time.Second
				p := begin(l, context.Background(), start).wait()
				p.acquired(core.AcquireEnd{HolderNote: l.Note(p.ctx)})
				l.Renewed(core.Renewal{Backend: "redis", Key: start.Key, Kind: start.Kind, Mark: p.mark, TTL: start.TTL, Err: core.ErrUnavailable})
				l.Breaker(core.BreakerEvent{Backend: "redis", Node: fmt.Sprint(i % 2), From: "closed", To: "open"})
				l.ClockOffset("redlock", fmt.Sprint(i%5), time.Second)
				p.release(p.ctx, nil)
			}
		})
	}
	for range 20 {
		l.collect()
	}
	all.Wait()
	if n, _ := l.sum("latchkit.contentions"); n != 400 {
		t.Errorf("%d contentions", n)
	}
	if n, points := l.sum("latchkit.held"); n != 0 || points != 12 {
		t.Errorf("held %d in %d series", n, points)
	}
}

// T5.
func TestLossIsCountedOnceWithItsReason(t *testing.T) {
	for _, reason := range append(slices.Clone(lossReasons), "never heard of") {
		l := newLab(t)
		begin(l, context.Background(), order("k")).acquired(core.AcquireEnd{}).end(fmt.Errorf("x: %w", core.ErrLost), reason)
		label := reason
		if reason == "never heard of" {
			label = other
		}
		if n, _ := l.sum("latchkit.lost", attrReason.String(label)); n != 1 {
			t.Errorf("%s: lost %d", reason, n)
		}
		if n, _ := l.sum("latchkit.lost"); n != 1 {
			t.Errorf("%s: lost %d in all", reason, n)
		}
		if n, _ := l.records("latchkit.hold.duration", attrEnd.String("lost")); n != 1 {
			t.Errorf("%s: %d holds that were lost", reason, n)
		}
	}
}

func TestEndsOfAHold(t *testing.T) {
	for cause, end := range map[error]string{
		core.ErrReleased: "released", core.ErrLost: "lost",
	} {
		l := newLab(t)
		begin(l, context.Background(), order("k")).acquired(core.AcquireEnd{}).end(cause, "")
		if n, sum := l.records("latchkit.hold.duration", attrEnd.String(end)); n != 1 || sum != .02 {
			t.Errorf("%s: %d holds of %v s", end, n, sum)
		}
		if lost, _ := l.sum("latchkit.lost"); (lost == 1) != (end == "lost") {
			t.Errorf("%s: lost %d", end, lost)
		}
	}
}

// T6.
func TestContendedAcquire(t *testing.T) {
	l := newLab(t)
	waited := core.AcquireEnd{Waited: 1500 * time.Millisecond, Outcome: core.OutcomeTimeout, Err: &core.NotAcquiredError{}}
	begin(l, context.Background(), order("k")).wait().failed(waited)
	begin(l, context.Background(), order("k")).failed(core.AcquireEnd{Outcome: core.OutcomeContended, Err: &core.NotAcquiredError{}})
	begin(l, context.Background(), order("k")).wait().acquired(core.AcquireEnd{}).release(context.Background(), nil)
	begin(l, context.Background(), order("k")).acquired(core.AcquireEnd{}).release(context.Background(), nil)
	begin(l, context.Background(), order("k")).failed(core.AcquireEnd{Outcome: core.OutcomeTimeout, Err: context.DeadlineExceeded})
	if n, _ := l.sum("latchkit.contentions", attrBackend.String("redis"), attrKind.String("exclusive"), attrName.String(unnamed)); n != 3 {
		t.Errorf("%d contentions, want 3", n)
	}
	if n, sum := l.records("latchkit.acquire.duration", attrOutcome.String("timeout")); n != 2 || sum != 1.5 {
		t.Errorf("%d timeouts of %v s", n, sum)
	}
}

func TestTenThousandKeysAreOneSeries(t *testing.T) {
	l := newLab(t, WithKeyAttribute(func(key string) string { return key }))
	for i := range 10_000 {
		begin(l, context.Background(), order(fmt.Sprint("order:", i))).wait().acquired(core.AcquireEnd{}).release(context.Background(), nil)
	}
	for name, data := range l.collect() {
		switch d := data.(type) {
		case metricdata.Histogram[float64]:
			if len(d.DataPoints) != 1 {
				t.Errorf("%s: %d series", name, len(d.DataPoints))
			}
		case metricdata.Sum[int64]:
			want := map[string]int{"latchkit.lost": len(lossReasons) + 1, "latchkit.renewal.failures": len(renewalWords) + 1}[name]
			if len(d.DataPoints) != max(1, want) {
				t.Errorf("%s: %d series, want %d", name, len(d.DataPoints), max(1, want))
			}
		}
	}
}

func TestNamesBeyondTheLimitAreOne(t *testing.T) {
	reported := handled(t)
	l := newLab(t, WithName(func(key string) string { return key }))
	for i := range maxClasses + 50 {
		begin(l, context.Background(), order(fmt.Sprint(i))).acquired(core.AcquireEnd{}).release(context.Background(), nil)
	}
	if _, points := l.sum("latchkit.held"); points != maxClasses+1 {
		t.Errorf("%d series, want %d", points, maxClasses+1)
	}
	if n, _ := l.records("latchkit.acquire.duration", attrName.String(other)); n != 50 {
		t.Errorf("%d of the rest", n)
	}
	if len(*reported) != 1 {
		t.Errorf("reported %v, want it once", *reported)
	}
}

func TestUserFunctionsMayPanic(t *testing.T) {
	reported := handled(t)
	boom := func(key string) string { panic(key) }
	l := newLab(t, WithName(boom), WithKeyAttribute(boom))
	begin(l, context.Background(), order("secret")).acquired(core.AcquireEnd{}).release(context.Background(), nil)
	has(t, l.span("lock.acquire"), attrName.String(unnamed))
	quiet := newLab(t, WithFilter(func(context.Context, core.AcquireStart) bool { panic("secret") }))
	begin(quiet, context.Background(), order("secret")).acquired(core.AcquireEnd{}).release(context.Background(), nil)
	if len(*reported) == 0 {
		t.Error("nothing was reported")
	}
	for _, err := range *reported {
		if !errors.Is(err, errPanicked) || strings.Contains(err.Error(), "secret") {
			t.Errorf("reported %v", err)
		}
	}
}

// handled collects what is given to otel.Handle.
func handled(t *testing.T) *[]error {
	var errs []error
	before := otel.GetErrorHandler()
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { errs = append(errs, err) }))
	t.Cleanup(func() { otel.SetErrorHandler(before) })
	return &errs
}

func TestFallbackGrants(t *testing.T) {
	l := newLab(t)
	for range 2 {
		p := begin(l, context.Background(), order("k"))
		p.held.Degraded, p.held.DegradedReason = true, "open"
		p.acquired(core.AcquireEnd{}).release(context.Background(), nil)
	}
	if n, _ := l.sum("latchkit.fallback.grants", attrBackend.String("redis"), attrReason.String("open")); n != 2 {
		t.Errorf("%d grants", n)
	}
	for i := range maxReasons + 10 { // a backend that puts the text of an error there
		l.HoldStart(core.HoldStart{Backend: "redis", Degraded: true, DegradedReason: fmt.Sprint("boom ", i)})
	}
	if n, points := l.sum("latchkit.fallback.grants"); n != maxReasons+12 || points != maxReasons+1 {
		t.Errorf("%d grants in %d series", n, points)
	}
}

func TestBreaker(t *testing.T) {
	l := newLab(t)
	states := func(want string) {
		t.Helper()
		for _, s := range breakerStates {
			n, points := l.sum("latchkit.breaker.state", attrBackend.String("redis"), attrNode.String("a:1"), attrState.String(s))
			if (n == 1) != (s == want) || points != 1 {
				t.Errorf("in %s: %s is %d in %d series", want, s, n, points)
			}
		}
	}
	event := core.BreakerEvent{Backend: "redis", Node: "a:1", To: "closed"}
	l.Breaker(event)
	states("closed")
	if n, points := l.sum("latchkit.breaker.transitions", attrNode.String("a:1")); n != 0 || points != 4 {
		t.Errorf("%d transitions in %d series at the start", n, points)
	}
	if n, points := l.sum("latchkit.fallback.grants", attrBackend.String("redis")); n != 0 || points != len(grantReasons) {
		t.Errorf("%d grants in %d series at the start", n, points)
	}
	event.From, event.To = "closed", "open"
	l.Breaker(event)
	states("open")
	event.From, event.To = "open", "half-open"
	l.Breaker(event)
	states("half-open")
	for _, change := range [][2]string{{"closed", "open"}, {"open", "half-open"}} {
		if n, _ := l.sum("latchkit.breaker.transitions", attrFrom.String(change[0]), attrTo.String(change[1])); n != 1 {
			t.Errorf("%v: %d", change, n)
		}
	}
}

func TestClockOffset(t *testing.T) {
	l := newLab(t)
	l.ClockOffset("redlock", "a:1", 5*time.Second)
	l.ClockOffset("redlock", "a:1", -250*time.Millisecond)
	data, ok := l.collect()["latchkit.clock.offset"].(metricdata.Gauge[float64])
	if !ok || len(data.DataPoints) != 1 || data.DataPoints[0].Value != -.25 {
		t.Errorf("%v", data)
	}
}

// Two Tracers, of two engines perhaps, on one provider add up; neither hides the other.
func TestTwoTracersAddUp(t *testing.T) {
	l := newLab(t)
	second := New(WithMeterProvider(l.meterProvider), WithTracerProvider(l.tp))
	begin(l, context.Background(), order("a")).acquired(core.AcquireEnd{})
	begin(second, context.Background(), order("b")).acquired(core.AcquireEnd{})
	if held, points := l.sum("latchkit.held"); held != 2 || points != 1 {
		t.Errorf("held %d in %d series", held, points)
	}
}

func TestMetricsAreDescribed(t *testing.T) {
	l := newLab(t)
	p := begin(l, context.Background(), order("k")).acquired(core.AcquireEnd{})
	l.Renewed(core.Renewal{Backend: "redis", Mark: p.mark, TTL: time.Second, Slack: time.Second})
	l.ClockOffset("redlock", "a", 0)
	l.Breaker(core.BreakerEvent{Backend: "redis", To: "closed"})
	p.release(context.Background(), nil)
	var all metricdata.ResourceMetrics
	if err := l.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	units := make(map[string]string)
	for _, m := range all.ScopeMetrics[0].Metrics {
		if units[m.Name] = m.Unit; m.Description == "" || m.Unit == "" {
			t.Errorf("%s: unit %q, description %q", m.Name, m.Unit, m.Description)
		}
		h, ok := m.Data.(metricdata.Histogram[float64])
		if !ok {
			continue
		}
		if b := h.DataPoints[0].Bounds; !slices.IsSorted(b) || b[0] >= 1 {
			t.Errorf("%s: boundaries %v are not of its own", m.Name, b)
		}
	}
	if len(units) != 14 {
		t.Errorf("%d metrics: %v", len(units), units)
	}
	for _, name := range []string{"latchkit.acquire.duration", "latchkit.hold.duration", "latchkit.renewal.slack", "latchkit.clock.offset"} {
		if units[name] != "s" {
			t.Errorf("%s is in %q", name, units[name])
		}
	}
}

func TestExemplarsLeadToTheAcquire(t *testing.T) {
	l := newLab(t)
	begin(l, context.Background(), order("k")).acquired(core.AcquireEnd{}).release(context.Background(), nil)
	id := l.span("lock.acquire").SpanContext().SpanID()
	for _, name := range []string{"latchkit.acquire.duration", "latchkit.hold.duration"} {
		data := l.collect()[name].(metricdata.Histogram[float64])
		if e := data.DataPoints[0].Exemplars; len(e) != 1 || string(e[0].SpanID) != string(id[:]) {
			t.Errorf("%s: exemplars %v", name, e)
		}
	}
}

// A provider that refuses every instrument costs the metrics, no lock and no spans.
func TestInstrumentErrorsAreReported(t *testing.T) {
	reported := handled(t)
	spans := tracetest.NewSpanRecorder()
	tracer := New(WithMeterProvider(refusing{}), WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
	p := begin(tracer, context.Background(), order("k")).wait().acquired(core.AcquireEnd{})
	tracer.Renewed(core.Renewal{Mark: p.mark, TTL: time.Second})
	p.release(context.Background(), nil)
	if len(*reported) < 14 {
		t.Errorf("%d errors reported", len(*reported))
	}
	if len(spans.Ended()) != 2 {
		t.Errorf("%d spans", len(spans.Ended()))
	}
}

type refusing struct{ noop.MeterProvider }

func (refusing) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

type refusingMeter struct{ noop.Meter }

var errRefused = errors.New("refused")

func (refusingMeter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return nil, errRefused
}

func (refusingMeter) Int64ObservableCounter(string, ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	return nil, errRefused
}

func (refusingMeter) Int64ObservableUpDownCounter(string, ...metric.Int64ObservableUpDownCounterOption) (metric.Int64ObservableUpDownCounter, error) {
	return nil, errRefused
}

func (refusingMeter) Float64ObservableGauge(string, ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	return nil, errRefused
}

func (refusingMeter) RegisterCallback(metric.Callback, ...metric.Observable) (metric.Registration, error) {
	return nil, errRefused
}
