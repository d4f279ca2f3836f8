package fallback

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/latchkit/latchkit/core"
)

// Policy says who may pass while the backend cannot serve.
type Policy uint8

const (
	// Local grants locks that exclude within this process. It is the default.
	Local Policy = iota
	// Allow grants whatever is asked for: beside all other holders, in this process too, and beside cooldowns. Only a
	// lease that the store granted before is still kept to itself in its process.
	Allow
)

func (p Policy) String() string {
	if p == Allow {
		return "allow"
	}
	return "local"
}

// Option sets how the fallback behaves. One that is out of its range is an error of core.New.
type Option func(*settings)

type settings struct {
	policy       Policy
	breaker      gobreaker.Settings
	maxLocalHold time.Duration
	drain        time.Duration
	dropLeases   bool
	onDegraded   func(Degradation)
	logger       *slog.Logger
	err          error // the first option out of range
}

func (s *settings) fail(option string, given any, allowed string) {
	if s.err == nil {
		s.err = fmt.Errorf("%w: fallback.%s(%v): allowed is %s", core.ErrInvalidOption, option, given, allowed)
	}
}

func defaults() settings {
	return settings{breaker: gobreaker.Settings{
		Interval:     10 * time.Second,
		BucketPeriod: time.Second,
		Timeout:      5 * time.Second,
		ReadyToTrip:  failing,
	}}
}

// failing is true when three trips in a row have failed, or most of many: a server that is full or read-only still
// answers some of them.
func failing(c gobreaker.Counts) bool {
	samples := c.TotalSuccesses + c.TotalFailures
	return c.ConsecutiveFailures >= 3 || samples >= 10 && c.TotalFailures*2 >= samples
}

// WithPolicy sets who may pass while the backend cannot serve; Local unless set.
func WithPolicy(p Policy) Option {
	return func(s *settings) {
		if p > Allow {
			s.fail("WithPolicy", uint8(p), "Local or Allow")
			return
		}
		s.policy = p
	}
}

// WithBreaker sets the breakers, of which each node has one, in place of the default: open after three failed trips in
// a row or when half of at least ten within 10 s have failed, for 5 s. Fields that are zero have gobreaker's meaning.
//
// OnStateChange is called with Name and the node, in order, from a goroutine that holds no lock, so it may use the
// locks. ReadyToTrip is called under the breaker's lock and must not. IsExcluded and IsSuccessful are asked, in this
// order, only about trips that this package takes for failures.
func WithBreaker(st gobreaker.Settings) Option { return func(s *settings) { s.breaker = st } }

// WithMaxLocalHold bounds how long a lease is renewed without the backend: a renewal that would take it past d fails,
// so that the lease ends with its TTL, d after the backend went away at the latest, or after one TTL when that is
// longer. 0, the default, sets no bound.
func WithMaxLocalHold(d time.Duration) Option {
	return func(s *settings) {
		if d < 0 {
			s.fail("WithMaxLocalHold", d, "0 or more")
			return
		}
		s.maxLocalHold = d
	}
}

// WithDrain makes the first local grants wait until d after the breaker opened. With the longest TTL that any process
// uses, leases of processes that lost Redis as well have ended by then. Meanwhile an Acquire that may wait does, and one
// that may not gets core.ErrUnavailable. It has no meaning for Allow.
func WithDrain(d time.Duration) Option {
	return func(s *settings) {
		if d < 0 {
			s.fail("WithDrain", d, "0 or more")
			return
		}
		s.drain = d
	}
}

// WithoutCarryOver has leases that the backend granted end at their deadline when it cannot renew them, instead of
// living on as local ones.
func WithoutCarryOver() Option { return func(s *settings) { s.dropLeases = true } }

// WithOnDegraded has fn told of every lease that is held without the backend. Calls come in order, from a goroutine
// that holds no lock, so fn may use the locks; one that is slow delays the later ones. At most 1,024 wait; what is
// dropped is counted in Degradation.Missed.
func WithOnDegraded(fn func(Degradation)) Option { return func(s *settings) { s.onDegraded = fn } }

// WithLogger sets where transitions are logged, once each; slog.Default unless set.
func WithLogger(l *slog.Logger) Option { return func(s *settings) { s.logger = l } }

// Degradation tells of a lease that is held without the backend.
type Degradation struct {
	What Crossing
	Key  string // prefix included
	Node string // the backend's name for the node; "" where there is one only
	At   time.Time
	// Missed is how many were dropped before this one, because the function was too slow.
	Missed int
}

// Crossing is how a lease came to be degraded.
type Crossing uint8

const (
	// Granted here: the lease was acquired while the breaker was not closed.
	Granted Crossing = iota + 1
	// CarriedOver: the backend granted the lease and could not renew it.
	CarriedOver
	// TakenElsewhere: the lease was granted here, and when the backend was back, another process had the key there.
	// Both hold it.
	TakenElsewhere
)

func (c Crossing) String() string {
	switch c {
	case Granted:
		return "granted"
	case CarriedOver:
		return "carried over"
	case TakenElsewhere:
		return "taken elsewhere"
	}
	return "unknown"
}
