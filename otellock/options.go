package otellock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/latchkit/latchkit/core"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Option sets what a Tracer records. A nil Option, and an Option given nil, are ignored.
type Option func(*config)

// Filter tells whether an Acquire, with the release and the failed renewals of its hold, gets spans. ctx is the one
// given to Acquire. It is called on every Acquire, so it should be quick.
type Filter func(ctx context.Context, e core.AcquireStart) bool

type config struct {
	tracerProvider   trace.TracerProvider
	meterProvider    metric.MeterProvider
	keyAttribute     func(key string) string
	name             func(key string) string
	spanAttributes   []attribute.KeyValue
	metricAttributes []attribute.KeyValue
	filters          []Filter
	holderLink       bool
}

func newConfig(opts []Option) config {
	var c config
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	if c.tracerProvider == nil {
		c.tracerProvider = otel.GetTracerProvider()
	}
	if c.meterProvider == nil {
		c.meterProvider = otel.GetMeterProvider()
	}
	return c
}

// WithTracerProvider makes the spans with tp; with the global provider unless set. The global one may be installed
// after New.
func WithTracerProvider(tp trace.TracerProvider) Option {
	return func(c *config) {
		if tp != nil {
			c.tracerProvider = tp
		}
	}
}

// WithMeterProvider makes the metrics with mp; with the global provider unless set. The global one may be installed
// after New: what was counted before then is exported too, save for the histograms.
func WithMeterProvider(mp metric.MeterProvider) Option {
	return func(c *config) {
		if mp != nil {
			c.meterProvider = mp
		}
	}
}

// WithKeyAttribute puts latchkit.key on spans, never on metrics: what show returns for the key, at most 512 bytes,
// or nothing when that is empty. Keys are often personal data (an order, a user), so none is shown without it; show
// may shorten or hash.
func WithKeyAttribute(show func(key string) string) Option {
	return func(c *config) {
		if show != nil {
			c.keyAttribute = show
		}
	}
}

// WithName gives latchkit.name, on spans and metrics: the class that a key belongs to, such as "order" for
// "order:42". Every class is a series of its own in every metric, so there must be few; after 200 the rest are one,
// "_OTHER". Without it, and where class returns "", the class is "unnamed". class must give equal keys equal classes.
func WithName(class func(key string) string) Option {
	return func(c *config) {
		if class != nil {
			c.name = class
		}
	}
}

// WithSpanAttributes adds attributes to every span, at its start, so that samplers see them.
func WithSpanAttributes(attributes ...attribute.KeyValue) Option {
	return func(c *config) { c.spanAttributes = slices.Concat(c.spanAttributes, attributes) }
}

// WithMetricAttributes adds attributes to every metric.
func WithMetricAttributes(attributes ...attribute.KeyValue) Option {
	return func(c *config) { c.metricAttributes = slices.Concat(c.metricAttributes, attributes) }
}

// WithFilter leaves out the spans of an Acquire for which f returns false, and of its release. Given several times,
// all must agree. Metrics count every Acquire all the same.
func WithFilter(f Filter) Option {
	return func(c *config) {
		if f != nil {
			c.filters = append(slices.Clip(c.filters), f)
		}
	}
}

// WithHolderLink leaves the span context of a sampled acquire (a W3C traceparent, 55 bytes) beside the lock in the
// backend for as long as it is held. An acquire in another process that the lock keeps out then links to it: from
// the slow request to the one that held it up. Inside one process that link is always made.
func WithHolderLink() Option { return func(c *config) { c.holderLink = true } }

// class returns the low-cardinality name of key.
func (t *Tracer) class(key string) string {
	if t.name == nil {
		return unnamed
	}
	raw := guard("WithName", t.name, key)
	if raw == "" {
		return unnamed
	}
	class, ok := t.classes.load(raw, func() string { return text(raw, maxClass) })
	if ok {
		return class
	}
	t.tooMany.Do(func() {
		otel.Handle(fmt.Errorf("latchkit: otellock.WithName gave more than %d names; the rest are %q", maxClasses, other))
	})
	return other
}

// keyOf returns what spans show of key, or "".
func (t *Tracer) keyOf(key string) string {
	if t.keyAttribute == nil {
		return ""
	}
	return text(guard("WithKeyAttribute", t.keyAttribute, key), maxKey)
}

// wanted asks the filters.
func (t *Tracer) wanted(ctx context.Context, e core.AcquireStart) (yes bool) {
	if len(t.filters) == 0 {
		return true
	}
	defer recovered("WithFilter")
	for _, f := range t.filters {
		if !f(ctx, e) {
			return false
		}
	}
	return true
}

// guard calls a user's function. It runs in the middle of the engine, so a panic is reported and costs the name, not
// the lock.
func guard(option string, f func(string) string, key string) string {
	defer recovered(option)
	return f(key)
}

func recovered(option string) {
	if recover() != nil {
		// Without its value, which may quote the key.
		otel.Handle(fmt.Errorf("%w: otellock.%s", errPanicked, option))
	}
}

var errPanicked = errors.New("latchkit: function panicked")
