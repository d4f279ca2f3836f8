package otellock

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/otlptest"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

func TestOTLP(t *testing.T) {
	r := otlptest.Start(t)
	exporter, err := otlptracegrpc.New(context.Background(), otlptracegrpc.WithEndpoint(r.Addr), otlptracegrpc.WithInsecure())
	if err != nil {
		t.Fatal(err)
	}
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	l := &lab{t: t, reader: sdkmetric.NewManualReader()}
	tracer := New(WithTracerProvider(tp), WithHolderLink(),
		WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(l.reader))))
	down := &faulty{Backend: core.Local()}
	owners := &recording{Backend: down, owners: make(map[string]bool)}
	locks, err := core.New(owners, core.WithTracer(tracer))
	if err != nil {
		t.Fatal(err)
	}

	// A request that waits for another, one that is refused, one that meets an outage, and a lock that is lost.
	const key = "order:secret-42"
	ctx, request := tp.Tracer("test").Start(context.Background(), "request")
	first := mustAcquire(t, locks, ctx, key)
	if _, err := locks.Acquire(ctx, key); err == nil {
		t.Fatal("acquired twice")
	}
	served := l.waiter(locks, ctx, key)
	first.Release(ctx)
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	lost := mustAcquire(t, locks, ctx, key, core.WithTTL(100*time.Millisecond))
	down.down.Store(true)
	locks.Acquire(ctx, "order:secret-43")
	<-lost.Context().Done()
	down.down.Store(false)
	lost.Release(ctx)
	locks.Close(context.Background())
	request.End()
	if err := tp.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}

	checkTree(t, r)
	metrics, err := json.Marshal(l.collect())
	if err != nil {
		t.Fatal(err)
	}
	exported := append(r.Raw(), metrics...)
	owners.mu.Lock()
	defer owners.mu.Unlock()
	if len(owners.owners) < 3 || !bytes.Contains(exported, []byte("lock.acquire")) || !bytes.Contains(metrics, []byte(unnamed)) {
		t.Fatalf("%d owners, %d bytes exported: the search would prove nothing", len(owners.owners), len(exported))
	}
	for owner := range owners.owners {
		if bytes.Contains(exported, []byte(owner)) {
			t.Errorf("owner %s was exported", owner)
		}
	}
	if bytes.Contains(exported, []byte("secret-4")) {
		t.Error("a key was exported")
	}
}

// checkTree looks at what the backend was given: the request's trace, and the failed renewals beside it.
func checkTree(t *testing.T, r *otlptest.Receiver) {
	t.Helper()
	requests, acquires, releases, renewals := r.Spans("request"), r.Spans("lock.acquire"), r.Spans("lock.release"), r.Spans("lock.renew")
	if len(requests) != 1 || len(acquires) != 5 || len(releases) < 2 || len(renewals) == 0 {
		t.Fatalf("%d requests, %d acquires, %d releases, %d renewals", len(requests), len(acquires), len(releases), len(renewals))
	}
	byID := make(map[string]bool)
	for _, a := range acquires {
		byID[string(a.SpanId)] = true
	}
	for _, s := range append(acquires, releases...) {
		if !bytes.Equal(s.ParentSpanId, requests[0].SpanId) || !bytes.Equal(s.TraceId, requests[0].TraceId) {
			t.Errorf("%s is not in the request's trace", s.Name)
		}
		if s.Kind != tracepb.Span_SPAN_KIND_INTERNAL {
			t.Errorf("%s: kind %v", s.Name, s.Kind)
		}
	}
	for _, s := range append(releases, renewals...) {
		if len(s.Links) != 1 || !byID[string(s.Links[0].SpanId)] {
			t.Errorf("%s is not linked to an acquire", s.Name)
		}
	}
	for _, s := range renewals {
		if len(s.ParentSpanId) != 0 || s.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR {
			t.Errorf("lock.renew: parent %x, status %v", s.ParentSpanId, s.Status)
		}
	}
	for _, s := range r.Spans("") {
		if s.Name != "request" && s.Scope != ScopeName {
			t.Errorf("%s: scope %q", s.Name, s.Scope)
		}
	}
}

// recording remembers every owner that it saw.
type recording struct {
	core.Backend
	mu     sync.Mutex
	owners map[string]bool
}

func (r *recording) Do(ctx context.Context, ops []*core.Op) {
	r.mu.Lock()
	for _, op := range ops {
		if op.Owner != "" {
			r.owners[op.Owner] = true
		}
	}
	r.mu.Unlock()
	r.Backend.Do(ctx, ops)
}
