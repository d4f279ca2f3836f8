package otellock

import (
	"errors"
	"time"

	"github.com/latchkit/latchkit/core"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// seriesID is what tells the series of a metric apart: never the key.
type seriesID struct {
	backend string
	kind    core.Kind
	name    string
}

// series holds the counts of one seriesID, and every set of attributes that its measurements need, so that none is
// made while a lock is taken.
type series struct {
	spanAttributes []attribute.KeyValue

	held, waiting   *counter
	contentions     *counter
	lost            counters
	renewalFailures counters

	acquired map[core.Outcome][]metric.RecordOption
	ended    map[string][]metric.RecordOption
	renewed  []metric.RecordOption
}

// The reasons of a loss, the failures of a renewal and the ends of a hold that have a series of their own.
var (
	lossReasons  = []string{"expired", "deleted", "taken", "unavailable", "forced", "closed"}
	renewalWords = []string{"lost", "unavailable", "denied", "conflict"}
	outcomes     = []core.Outcome{core.OutcomeAcquired, core.OutcomeContended, core.OutcomeTimeout, core.OutcomeCanceled, core.OutcomeError}
	ends         = []string{endReleased, endLost}
)

const (
	endReleased = "released"
	endLost     = "lost"
)

// endOf returns the word for the cause with which a hold ended.
func endOf(cause error) string {
	if errors.Is(cause, core.ErrLost) {
		return endLost
	}
	return endReleased
}

// seriesOf returns the series of a hold.
func (t *Tracer) seriesOf(backend string, kind core.Kind, name string) *series {
	id := seriesID{backend, kind, name}
	s, ok := t.series.get(id)
	if !ok {
		s, _ = t.series.load(id, func() *series { return t.newSeries(id) })
	}
	return s
}

func (t *Tracer) newSeries(id seriesID) *series {
	identity := []attribute.KeyValue{
		attrBackend.String(text(id.backend, maxClass)), attrKind.String(id.kind.String()), attrName.String(id.name),
	}
	base := concat(t.metricAttributes, identity)
	s := &series{
		spanAttributes:  concat(t.spanAttributes, identity),
		held:            newCounter(base),
		waiting:         newCounter(base),
		contentions:     newCounter(base),
		lost:            newCounters(base, attrReason, lossReasons...),
		renewalFailures: newCounters(base, attrErrorType, renewalWords...),
		acquired:        make(map[core.Outcome][]metric.RecordOption),
		ended:           make(map[string][]metric.RecordOption),
		renewed:         recordWith(base),
	}
	for _, o := range outcomes {
		s.acquired[o] = recordWith(base, attrOutcome.String(string(o)))
	}
	for _, e := range ends {
		s.ended[e] = recordWith(base, attrEnd.String(e))
	}
	return s
}

// profileID is a seriesID and what else a span shows of every lock taken in the same way.
type profileID struct {
	seriesID
	fair bool
	ttl  time.Duration
}

// profile holds what the spans of such locks start with.
type profile struct {
	*series
	ttl      time.Duration
	acquire  []trace.SpanStartOption
	release  []trace.SpanStartOption
	untraced *hold // the mark of every hold without a span
}

// profileOf returns the profile of an Acquire.
func (t *Tracer) profileOf(e *core.AcquireStart) *profile {
	id := profileID{seriesID{e.Backend, e.Kind, t.class(e.Key)}, e.Fair, e.TTL}
	p, ok := t.profiles.get(id)
	if !ok {
		p, _ = t.profiles.load(id, func() *profile { return t.newProfile(id) })
	}
	return p
}

func (t *Tracer) newProfile(id profileID) *profile {
	s := t.seriesOf(id.backend, id.kind, id.name)
	start := concat(s.spanAttributes, []attribute.KeyValue{attrTTL.Float64(id.ttl.Seconds())})
	if id.fair {
		start = append(start, attrFair.Bool(true))
	}
	p := &profile{
		series:  s,
		ttl:     id.ttl,
		acquire: []trace.SpanStartOption{trace.WithAttributes(start...)},
		release: []trace.SpanStartOption{trace.WithAttributes(s.spanAttributes...)},
	}
	p.untraced = &hold{profile: p}
	return p
}

// concat returns a slice without spare room: whoever appends to it copies.
func concat(a, b []attribute.KeyValue) []attribute.KeyValue {
	c := make([]attribute.KeyValue, 0, len(a)+len(b))
	return append(append(c, a...), b...)
}
