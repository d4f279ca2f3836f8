package otellock

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// traceparent is the W3C header whose value a note is. Baggage and trace state stay at home: they may say anything.
const traceparent = "traceparent"

// Note implements core.Noter. It is empty without WithHolderLink, and for a span that nobody will find.
func (t *Tracer) Note(ctx context.Context) string {
	if !t.holderLink || !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceparent]
}

// noted returns the span context in a note. Anyone who can write to the store can write a note, so what is not one
// of ours gives an invalid span context.
func noted(note string) trace.SpanContext {
	if note == "" {
		return trace.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceparent: note})
	return trace.SpanContextFromContext(ctx)
}

// holder returns the span context of the acquire that stood in the way, invalid where it is not known.
func holder(mark any, note string) trace.SpanContext {
	if h, ok := mark.(*hold); ok && h.span.IsSampled() {
		return h.span
	}
	return noted(note)
}
