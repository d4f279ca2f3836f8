package otellock_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/otellock"
)

// Without it spans go to the global provider, which may be installed later.
func ExampleWithTracerProvider() {
	spans := tracetest.NewSpanRecorder()
	tracer := otellock.New(otellock.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
	lockOnce(tracer)
	for _, s := range spans.Ended() {
		fmt.Println(s.Name())
	}
	// Output:
	// lock.acquire
	// lock.release
}

// Without it metrics go to the global provider, which may be installed later.
func ExampleWithMeterProvider() {
	reader := sdkmetric.NewManualReader()
	tracer := otellock.New(otellock.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	lockOnce(tracer)
	var all metricdata.ResourceMetrics
	fmt.Println(reader.Collect(context.Background(), &all), all.ScopeMetrics[0].Scope.Name)
	// Output: <nil> github.com/latchkit/latchkit/otellock
}

func ExampleWithSpanAttributes() {
	spans := tracetest.NewSpanRecorder()
	tracer := otellock.New(
		otellock.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))),
		otellock.WithSpanAttributes(attribute.String("team", "shop")))
	lockOnce(tracer)
	for _, s := range spans.Ended() {
		attributes := attribute.NewSet(s.Attributes()...)
		team, _ := attributes.Value("team")
		fmt.Println(s.Name(), team.AsString())
	}
	// Output:
	// lock.acquire shop
	// lock.release shop
}

func ExampleWithMetricAttributes() {
	reader := sdkmetric.NewManualReader()
	tracer := otellock.New(
		otellock.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))),
		otellock.WithMetricAttributes(attribute.String("team", "shop")))
	lockOnce(tracer)
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if held, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "latchkit.held" {
			team, _ := held.DataPoints[0].Attributes.Value("team")
			fmt.Println(m.Name, team.AsString())
		}
	}
	// Output: latchkit.held shop
}

func lockOnce(tracer core.Tracer) {
	ctx := context.Background()
	locks, err := core.New(core.Local(), core.WithTracer(tracer))
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	if err := core.Do(ctx, locks, "order:42", func(context.Context) error { return nil }); err != nil {
		panic(err)
	}
}
