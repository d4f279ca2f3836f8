package otellock

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/latchkit/latchkit/core"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// nodeID names one node of a backend.
type nodeID struct{ backend, node string }

const (
	maxNodes   = 1000
	maxReasons = 50
)

// breaker holds the counts of one breaker.
type breaker struct {
	state       counters
	transitions map[[2]string]*counter
}

var breakerStates = []string{"closed", "open", "half-open"}

// breakerTransitions are those that a breaker can make; each is there as 0 from its first event.
var breakerTransitions = [][2]string{
	{"closed", "open"}, {"open", "half-open"}, {"half-open", "open"}, {"half-open", "closed"},
}

// Breaker implements core.BreakerTracer.
func (t *Tracer) Breaker(e core.BreakerEvent) {
	id := nodeID{e.Backend, e.Node}
	b, _ := t.breakers.load(id, func() *breaker { return t.newBreaker(id) })
	for state, c := range b.state {
		var here int64
		if state == e.To {
			here = 1
		}
		c.n.Store(here)
	}
	if c, ok := b.transitions[[2]string{e.From, e.To}]; ok {
		c.add(1)
	}
}

func (t *Tracer) newBreaker(id nodeID) *breaker {
	base := concat(t.metricAttributes, node(id))
	b := &breaker{state: make(counters), transitions: make(map[[2]string]*counter)}
	for _, s := range breakerStates {
		b.state[s] = newCounter(base, attrState.String(s))
	}
	for _, change := range breakerTransitions {
		b.transitions[change] = newCounter(base, attrFrom.String(change[0]), attrTo.String(change[1]))
	}
	for _, reason := range grantReasons {
		t.grant(id.backend, reason)
	}
	return b
}

// grantID names why a backend's fallback granted.
type grantID struct{ backend, reason string }

// grantReasons are there as 0 from the first word of a backend's breaker.
var grantReasons = []string{"open", "half-open", other}

// degraded counts a lock that was granted without the backend.
func (t *Tracer) degraded(backend, reason string) {
	if reason == "" {
		reason = other
	}
	t.grant(backend, reason).add(1)
}

// grant returns the series of backend and reason, or that of the rest when there are too many.
func (t *Tracer) grant(backend, reason string) *counter {
	c, ok := t.grants.load(grantID{backend, reason}, func() *counter {
		return newCounter(t.metricAttributes,
			attrBackend.String(text(backend, maxClass)), attrReason.String(text(reason, maxClass)))
	})
	if !ok {
		return t.otherGrants
	}
	return c
}

func (t *Tracer) collectFallback(o metric.Observer) {
	t.breakers.all(func(_ nodeID, b *breaker) {
		b.state.observe(o, t.breakerState)
		for _, c := range b.transitions {
			c.observe(o, t.breakerTransitions)
		}
	})
	t.grants.all(func(_ grantID, c *counter) { c.observe(o, t.fallbackGrants) })
	if t.breakers.len() == 0 {
		t.zero.observe(o, t.breakerTransitions)
	}
	t.otherGrants.observe(o, t.fallbackGrants)
}

// clock holds the offset of one node's clock, as the bits of a float64 in seconds.
type clock struct {
	seconds    atomic.Uint64
	attributes []metric.ObserveOption
}

// ClockOffset implements core.ClockTracer.
func (t *Tracer) ClockOffset(backend, nodeName string, offset time.Duration) {
	id := nodeID{backend, nodeName}
	c, _ := t.clocks.load(id, func() *clock {
		return &clock{attributes: []metric.ObserveOption{metric.WithAttributeSet(join(t.metricAttributes, node(id)...))}}
	})
	c.seconds.Store(math.Float64bits(offset.Seconds()))
}

func (t *Tracer) collectClocks(o metric.Observer) {
	t.clocks.all(func(_ nodeID, c *clock) {
		o.ObserveFloat64(t.clockOffset, math.Float64frombits(c.seconds.Load()), c.attributes...)
	})
}

func node(id nodeID) []attribute.KeyValue {
	return []attribute.KeyValue{attrBackend.String(text(id.backend, maxClass)), attrNode.String(text(id.node, maxClass))}
}
