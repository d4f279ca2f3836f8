package main

import (
	"context"
	"errors"
	"io"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const serviceName = attribute.Key("service.name")

// telemetry gives each service a provider of its own, as if it were a process of its own. All send to one place.
type telemetry struct {
	exporter  sdktrace.SpanExporter
	kept      *memory // nil when the spans go elsewhere
	providers []*sdktrace.TracerProvider
}

func newTelemetry(ctx context.Context, otlp string) (*telemetry, error) {
	if otlp == "" {
		kept := new(memory)
		return &telemetry{exporter: kept, kept: kept}, nil
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(otlp), otlptracegrpc.WithInsecure())
	return &telemetry{exporter: exporter}, err
}

func (t *telemetry) service(name string) *sdktrace.TracerProvider {
	tp := sdktrace.NewTracerProvider(
		sdktrace.WithResource(resource.NewSchemaless(serviceName.String(name))),
		sdktrace.WithBatcher(shared{t.exporter}))
	t.providers = append(t.providers, tp)
	return tp
}

// finish sends what is left, and prints the traces if they went nowhere else.
func (t *telemetry) finish(ctx context.Context, out io.Writer) error {
	var errs []error
	for _, tp := range t.providers {
		errs = append(errs, tp.Shutdown(ctx))
	}
	errs = append(errs, t.exporter.Shutdown(ctx))
	if t.kept != nil {
		printTraces(out, t.kept.spans)
	}
	return errors.Join(errs...)
}

// shared is an exporter that outlives the provider that uses it.
type shared struct{ sdktrace.SpanExporter }

func (shared) Shutdown(context.Context) error { return nil }

// memory keeps spans.
type memory struct {
	mu    sync.Mutex
	spans []sdktrace.ReadOnlySpan
}

func (m *memory) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spans = append(m.spans, spans...)
	return nil
}

func (*memory) Shutdown(context.Context) error { return nil }
