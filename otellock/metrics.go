package otellock

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// The boundaries of the histograms. Those of OpenTelemetry are meant for milliseconds; a lock takes from
// microseconds, in the process, to the patience of its caller.
var (
	acquireBuckets = []float64{
		.00001, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60,
	}
	holdBuckets  = []float64{.0001, .0005, .001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}
	slackBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 20, 30, 60, 300, 1800}
	// Of the TTL. Slack is at two thirds when all is well; a hold beyond 1 lives by its renewals.
	slackRatioBuckets = []float64{.1, .2, .3, .4, .5, .6, .7, .8, .9, 1}
	holdRatioBuckets  = []float64{.01, .1, .25, .5, .75, .9, 1, 2, 5, 10, 100}
)

// instruments are the metrics. Histograms record at once; the rest is observed when metrics are collected.
type instruments struct {
	acquireDuration metric.Float64Histogram
	holdDuration    metric.Float64Histogram
	holdRatio       metric.Float64Histogram
	renewalSlack    metric.Float64Histogram
	slackRatio      metric.Float64Histogram

	held, waiting      metric.Int64Observable
	contentions        metric.Int64Observable
	lost               metric.Int64Observable
	renewalFailures    metric.Int64Observable
	fallbackGrants     metric.Int64Observable
	breakerState       metric.Int64Observable
	breakerTransitions metric.Int64Observable
	clockOffset        metric.Float64Observable
}

func newInstruments(m metric.Meter) instruments {
	return instruments{
		acquireDuration: histogram(m, "latchkit.acquire.duration", "s", acquireBuckets,
			"How long an Acquire took until its outcome, the wait for other holders included."),
		holdDuration: histogram(m, "latchkit.hold.duration", "s", holdBuckets,
			"How long a lock was held."),
		holdRatio: histogram(m, "latchkit.hold.ttl_ratio", "1", holdRatioBuckets,
			"How long a lock was held, as a multiple of its TTL."),
		renewalSlack: histogram(m, "latchkit.renewal.slack", "s", slackBuckets,
			"What was left of a lease when it was renewed."),
		slackRatio: histogram(m, "latchkit.renewal.slack_ratio", "1", slackRatioBuckets,
			"What was left of a lease when it was renewed, as a part of its TTL."),

		held: upDown(m, "latchkit.held", "{lock}",
			"Locks that are held."),
		waiting: upDown(m, "latchkit.waiting", "{waiter}",
			"Acquires that wait for another holder."),
		contentions: total(m, "latchkit.contentions", "{acquire}",
			"Acquires that met another holder, whether they got the lock in the end or not."),
		lost: total(m, "latchkit.lost", "{lock}",
			"Locks that were lost before their release."),
		renewalFailures: total(m, "latchkit.renewal.failures", "{renewal}",
			"Renewals that failed; one that could not reach the backend is tried again."),
		fallbackGrants: total(m, "latchkit.fallback.grants", "{lock}",
			"Locks granted without the backend, by a fallback."),
		breakerState: upDown(m, "latchkit.breaker.state", "{breaker}",
			"1 for the state that a fallback's breaker is in, 0 for the others."),
		breakerTransitions: total(m, "latchkit.breaker.transitions", "{transition}",
			"Changes of state of a fallback's breaker."),
		clockOffset: offset(m, "latchkit.clock.offset", "s",
			"How far a node's clock is ahead of this process's."),
	}
}

func histogram(m metric.Meter, name, unit string, buckets []float64, description string) metric.Float64Histogram {
	h, err := m.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(buckets...))
	if err != nil {
		otel.Handle(err)
	}
	if h == nil {
		return noop.Float64Histogram{}
	}
	return h
}

func total(m metric.Meter, name, unit, description string) metric.Int64Observable {
	c, err := m.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	return usable(c, err)
}

func upDown(m metric.Meter, name, unit, description string) metric.Int64Observable {
	c, err := m.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	return usable(c, err)
}

// usable reports err. A provider that failed may have returned nothing; what is observed there goes nowhere.
func usable(o metric.Int64Observable, err error) metric.Int64Observable {
	if err != nil {
		otel.Handle(err)
	}
	if o == nil {
		return noop.Int64ObservableCounter{}
	}
	return o
}

func offset(m metric.Meter, name, unit, description string) metric.Float64Observable {
	g, err := m.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	if err != nil {
		otel.Handle(err)
	}
	if g == nil {
		return noop.Float64ObservableGauge{}
	}
	return g
}

// observe registers the observation of everything that is counted. One callback for all, and not one an instrument:
// when two Tracers share a provider they share its instruments, and only a registered callback adds up there.
func (t *Tracer) observe(m metric.Meter) {
	var observed []metric.Observable
	for _, o := range []metric.Int64Observable{
		t.held, t.waiting, t.contentions, t.lost, t.renewalFailures,
		t.fallbackGrants, t.breakerState, t.breakerTransitions,
	} {
		if _, nowhere := o.(noop.Int64ObservableCounter); !nowhere {
			observed = append(observed, o)
		}
	}
	if _, nowhere := t.clockOffset.(noop.Float64ObservableGauge); !nowhere {
		observed = append(observed, t.clockOffset)
	}
	if _, err := m.RegisterCallback(t.collect, observed...); err != nil {
		otel.Handle(err)
	}
}

// collect tells every count. What has no series yet is told as a plain 0, so that a dashboard finds each metric from
// the start, and rate() sees the first event as a step from 0.
func (t *Tracer) collect(_ context.Context, o metric.Observer) error {
	t.series.all(func(_ seriesID, s *series) {
		s.held.observe(o, t.held)
		s.waiting.observe(o, t.waiting)
		s.contentions.observe(o, t.contentions)
		s.lost.observe(o, t.lost)
		s.renewalFailures.observe(o, t.renewalFailures)
	})
	if t.series.len() == 0 {
		for _, i := range []metric.Int64Observable{t.held, t.waiting, t.contentions, t.lost, t.renewalFailures} {
			t.zero.observe(o, i)
		}
	}
	t.collectFallback(o)
	t.collectClocks(o)
	return nil
}
