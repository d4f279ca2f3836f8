package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// printTraces prints every trace as a tree of spans, the earliest first. Traces of a single span that nobody's request
// caused (a connection to Redis, say) are left out.
func printTraces(out io.Writer, spans []sdktrace.ReadOnlySpan) {
	slices.SortFunc(spans, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	children := make(map[trace.SpanID][]sdktrace.ReadOnlySpan)
	for _, s := range spans {
		children[s.Parent().SpanID()] = append(children[s.Parent().SpanID()], s)
	}
	for _, root := range children[trace.SpanID{}] {
		if root.SpanKind() != trace.SpanKindServer {
			continue
		}
		fmt.Fprintf(out, "\ntrace %s\n", root.SpanContext().TraceID())
		printTree(out, children, root, "", "")
	}
}

// printTree prints s behind stem, and its children behind indent.
func printTree(out io.Writer, children map[trace.SpanID][]sdktrace.ReadOnlySpan, s sdktrace.ReadOnlySpan, stem, indent string) {
	took := s.EndTime().Sub(s.StartTime()).Round(10 * time.Microsecond)
	service, _ := s.Resource().Set().Value(serviceName)
	fmt.Fprintf(out, "%-9s %-48s %10v  %s\n", service.AsString(), stem+s.Name(), took, notes(s))
	below := children[s.SpanContext().SpanID()]
	for i, child := range below {
		branch, rest := "├─ ", "│  "
		if i == len(below)-1 {
			branch, rest = "└─ ", "   "
		}
		printTree(out, children, child, indent+branch, indent+rest)
	}
}

// notes returns what a lock's span tells, in short.
func notes(s sdktrace.ReadOnlySpan) string {
	var notes []string
	for _, a := range s.Attributes() {
		switch a.Key {
		case "latchkit.key", "latchkit.outcome":
			notes = append(notes, a.Value.AsString())
		case "latchkit.waited_gate", "latchkit.waited_backend", "latchkit.waited_holder":
			if d := time.Duration(a.Value.AsFloat64() * float64(time.Second)); d >= 10*time.Microsecond {
				_, part, _ := strings.Cut(string(a.Key), "_")
				notes = append(notes, fmt.Sprintf("%s %v", part, d.Round(10*time.Microsecond)))
			}
		}
	}
	for _, l := range s.Links() {
		for _, a := range l.Attributes {
			switch {
			case a.Key != "latchkit.link":
			case a.Value.AsString() == "holder":
				notes = append(notes, "held up by "+l.SpanContext.SpanID().String())
			default:
				notes = append(notes, "of "+l.SpanContext.SpanID().String())
			}
		}
	}
	if s.Name() == "lock.acquire" {
		notes = append(notes, "("+s.SpanContext().SpanID().String()+")")
	}
	return strings.Join(notes, ", ")
}
