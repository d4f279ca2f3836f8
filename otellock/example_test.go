package otellock_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/otellock"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// The Tracer uses the providers that the program has installed in package otel; most programs need no option.
func ExampleNew() {
	locks, err := core.New(core.Local(), core.WithTracer(otellock.New()))
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	err = core.Do(context.Background(), locks, "order:42", func(ctx context.Context) error {
		fmt.Println("locked")
		return nil
	})
	fmt.Println(err)
	// Output:
	// locked
	// <nil>
}

// Spans with the key, hashed or cut where it is personal, and with the team they belong to.
func ExampleWithKeyAttribute() {
	spans := tracetest.NewSpanRecorder()
	tracer := otellock.New(
		otellock.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))),
		otellock.WithKeyAttribute(func(key string) string { return key }),
		otellock.WithSpanAttributes(attribute.String("team", "shop")),
	)
	locks, _ := core.New(core.Local(), core.WithTracer(tracer))
	defer locks.Close(context.Background())

	lease, _ := locks.Acquire(context.Background(), "order:42")
	locks.Acquire(context.Background(), "order:42") // somebody else, in vain
	lease.Release(context.Background())

	for _, s := range spans.Ended() {
		attributes := attribute.NewSet(s.Attributes()...)
		key, _ := attributes.Value("latchkit.key")
		outcome, _ := attributes.Value("latchkit.outcome")
		team, _ := attributes.Value("team")
		fmt.Println(s.Name(), key.AsString(), team.AsString(), outcome.AsString())
	}
	// Output:
	// lock.acquire order:42 shop acquired
	// lock.acquire order:42 shop contended
	// lock.release order:42 shop
}

// Metrics by the kind of thing that is locked: one series for all orders, one for all users.
func ExampleWithName() {
	reader := sdkmetric.NewManualReader()
	tracer := otellock.New(
		otellock.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))),
		otellock.WithName(func(key string) string {
			name, _, _ := strings.Cut(key, ":")
			return name
		}),
	)
	locks, _ := core.New(core.Local(), core.WithTracer(tracer))
	defer locks.Close(context.Background())
	for i := range 3 {
		lease, _ := locks.Acquire(context.Background(), fmt.Sprint("order:", i))
		defer lease.Release(context.Background())
	}

	var all metricdata.ResourceMetrics
	reader.Collect(context.Background(), &all)
	for _, m := range all.ScopeMetrics[0].Metrics {
		if m.Name != "latchkit.held" {
			continue
		}
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			name, _ := p.Attributes.Value("latchkit.name")
			fmt.Println(m.Name, name.AsString(), p.Value)
		}
	}
	// Output:
	// latchkit.held order 3
}

// A lock that is taken a thousand times a second may have metrics alone.
func ExampleWithFilter() {
	spans := tracetest.NewSpanRecorder()
	tracer := otellock.New(
		otellock.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))),
		otellock.WithFilter(func(_ context.Context, e core.AcquireStart) bool {
			return !strings.HasPrefix(e.Key, "counter:")
		}),
	)
	locks, _ := core.New(core.Local(), core.WithTracer(tracer))
	defer locks.Close(context.Background())
	for _, key := range []string{"counter:1", "order:42"} {
		lease, _ := locks.Acquire(context.Background(), key)
		lease.Release(context.Background())
	}
	fmt.Println(len(spans.Ended()), "spans")
	// Output: 2 spans
}

// With WithHolderLink a request that was kept out links to the one that held it up, also in another process.
func ExampleWithHolderLink() {
	spans := tracetest.NewSpanRecorder()
	provider := otellock.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	backend := core.Local() // one store, two engines: as two processes over one Redis
	here, _ := core.New(backend, core.WithTracer(otellock.New(provider, otellock.WithHolderLink())))
	there, _ := core.New(backend, core.WithTracer(otellock.New(provider, otellock.WithHolderLink())))
	defer here.Close(context.Background())
	defer there.Close(context.Background())

	lease, _ := here.Acquire(context.Background(), "order:42")
	there.Acquire(context.Background(), "order:42")
	lease.Release(context.Background())

	holder, refused := spans.Ended()[0], spans.Ended()[1]
	fmt.Println(refused.Links()[0].SpanContext.SpanID() == holder.SpanContext().SpanID())
	// Output: true
}
