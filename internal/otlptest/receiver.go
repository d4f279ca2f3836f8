// Package otlptest is a tracing backend for tests: it takes spans over OTLP and gRPC on loopback, and keeps every byte.
package otlptest

import (
	"bytes"
	"context"
	"net"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Span is one span that was received.
type Span struct {
	*tracepb.Span
	Service string // the resource's service.name
	Scope   string // the name of the instrumentation scope
}

// Receiver is a backend. Its methods may be called while spans come in.
type Receiver struct {
	// Addr is where it listens.
	Addr string

	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	raw   bytes.Buffer
	spans []Span
}

// Start starts a Receiver that stops with the test.
func Start(t testing.TB) *Receiver {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Receiver{Addr: listener.Addr().String()}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	go func() { _ = server.Serve(listener) }() // it ends with the server
	t.Cleanup(server.Stop)
	return r
}

// Export implements the collector's service.
func (r *Receiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	raw, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.raw.Write(raw)
	for _, resource := range req.ResourceSpans {
		service := ""
		for _, a := range resource.Resource.GetAttributes() {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				r.spans = append(r.spans, Span{Span: s, Service: service, Scope: scope.Scope.GetName()})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// Raw returns everything that was received.
func (r *Receiver) Raw() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.raw.Bytes())
}

// Spans returns the spans of that name; all of them for "".
func (r *Receiver) Spans(name string) []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.spans), func(s Span) bool { return name != "" && s.Name != name })
}
