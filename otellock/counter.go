package otellock

import (
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// counter is one series of a counter or an up-down counter. The count is kept here and told when the metrics are
// collected. So it is there as 0 from the start, costs one atomic addition, and is right also when the meter
// provider is installed in the middle of a hold: an up-down counter that missed the beginning would end below zero.
type counter struct {
	n          atomic.Int64
	attributes []metric.ObserveOption
}

func newCounter(base []attribute.KeyValue, more ...attribute.KeyValue) *counter {
	return &counter{attributes: []metric.ObserveOption{metric.WithAttributeSet(join(base, more...))}}
}

func (c *counter) add(n int64) { c.n.Add(n) }

func (c *counter) observe(o metric.Observer, instrument metric.Int64Observable) {
	o.ObserveInt64(instrument, c.n.Load(), c.attributes...)
}

// counters are the series of one counter that differ in one attribute, all there from the start.
type counters map[string]*counter

func newCounters(base []attribute.KeyValue, by attribute.Key, values ...string) counters {
	c := make(counters, len(values)+1)
	for _, v := range append(values, other) {
		c[v] = newCounter(base, by.String(v))
	}
	return c
}

// of returns the series of value, or that of all others.
func (c counters) of(value string) *counter {
	if n, ok := c[value]; ok {
		return n
	}
	return c[other]
}

func (c counters) observe(o metric.Observer, instrument metric.Int64Observable) {
	for _, n := range c {
		n.observe(o, instrument)
	}
}

// join returns the set of both, in memory of its own: attribute.NewSet sorts what it is given.
func join(base []attribute.KeyValue, more ...attribute.KeyValue) attribute.Set {
	all := make([]attribute.KeyValue, 0, len(base)+len(more))
	return attribute.NewSet(append(append(all, base...), more...)...)
}

func recordWith(base []attribute.KeyValue, more ...attribute.KeyValue) []metric.RecordOption {
	return []metric.RecordOption{metric.WithAttributeSet(join(base, more...))}
}
