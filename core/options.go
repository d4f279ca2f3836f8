package core

import (
	"fmt"
	"math"
	"os"
	"strings"
	"time"
)

// Forever as a wait means until ctx ends: WithWait(Forever).
const Forever = time.Duration(math.MaxInt64)

// The bounds and the default of a lease's TTL.
const (
	MinTTL     = 10 * time.Millisecond
	MaxTTL     = 24 * time.Hour
	DefaultTTL = 30 * time.Second
)

const (
	maxLimit = 1 << 20
	maxLabel = 128
	maxNote  = 128

	maxReplicas       = 64
	maxReplicaTimeout = time.Second
)

// Option sets how Acquire behaves. Options given to New are the defaults of every Acquire.
type Option func(*settings)

type settings struct {
	prefix  string
	label   string
	ttl     time.Duration
	wait    time.Duration
	renew   bool
	maxHold time.Duration
	kind    Kind
	limit   int
	fair    bool
	tracer  Tracer
	// replicas must have a grant within replicaTimeout.
	replicas       int
	replicaTimeout time.Duration
	err            error // the first option out of range
}

func defaults() settings {
	return settings{ttl: DefaultTTL, renew: true, label: processLabel}
}

// with returns the settings with opts applied, or the error of the first that is out of range.
func (s settings) with(opts []Option) (settings, error) {
	for _, o := range opts {
		if o == nil {
			continue
		}
		o(&s)
	}
	return s, s.err
}

func (s *settings) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// WithTTL sets the lease's time to live, 10 ms to 24 h; 30 s unless set. It bounds how long the key outlives a
// holder that crashes, not how long a hold may take: the watchdog renews it at a third. It does not bound the wait.
func WithTTL(d time.Duration) Option {
	return func(s *settings) {
		if d < MinTTL || d > MaxTTL {
			s.fail(invalid("WithTTL", d, "10ms to 24h"))
			return
		}
		s.ttl = d
	}
}

// WithWait sets how long Acquire waits for another holder: 0, the default, tries once; Forever waits until ctx ends.
func WithWait(d time.Duration) Option {
	return func(s *settings) {
		if d < 0 {
			s.fail(invalid("WithWait", d, "0 or more"))
			return
		}
		s.wait = d
	}
}

// WithoutRenewal leaves the lease to end with its TTL; Extend still works.
func WithoutRenewal() Option { return func(s *settings) { s.renew = false } }

// WithMaxHold ends the lease's context with ErrMaxHold after d, at least 1 ms, and stops renewal. The key stays
// until Release or until the TTL has passed. On a lease that re-enters another it ends the context only.
func WithMaxHold(d time.Duration) Option {
	return func(s *settings) {
		if d < time.Millisecond {
			s.fail(invalid("WithMaxHold", d, "1ms or more"))
			return
		}
		s.maxHold = d
	}
}

// WithFair serves the waiters of all processes in order of arrival by the server's clock. Nobody passes them who asks
// with WithFair as well; one that does not, and comes when the key is free, may. A process that has not been heard of for
// 1 s, since it has died or stands still, is passed over; it keeps its place for WaiterTTL (5 s). So each process says
// three times a second that it waits for the key.
func WithFair() Option { return func(s *settings) { s.fair = true } }

// WithShared takes the key as one of many readers: no exclusive holder beside them. While an exclusive one waits, no new
// readers come in; where one always does, only WithFair, for all of them, lets readers in. A reader dies alone: its end
// keeps nobody out for longer than its own TTL.
func WithShared() Option {
	return func(s *settings) {
		if s.kind == Limited {
			s.fail(invalid("WithShared", "", "either WithShared or WithLimit"))
			return
		}
		s.kind = Shared
	}
}

// WithLimit takes the key as one of at most n holders, 1 to 1,048,576. A permit whose holder dies comes back with its
// TTL.
//
// The number belongs to the caller, not to the key: it is let in while fewer than its own n hold the key, whatever the
// others said. So where callers differ, as they do while a new number is deployed, the greatest n is how many there may
// be, and those with a smaller one wait for longer: after a change from 10 to 5 none comes in until fewer than 5 are left.
func WithLimit(n int) Option {
	return func(s *settings) {
		switch {
		case n < 1 || n > maxLimit:
			s.fail(invalid("WithLimit", n, fmt.Sprintf("1 to %d", maxLimit)))
		case s.kind == Shared:
			s.fail(invalid("WithLimit", n, "either WithShared or WithLimit"))
		default:
			s.kind, s.limit = Limited, n
		}
	}
}

// WithPrefix stands before every key in the backend; none unless set. It must not contain "latchkit~", which names
// companions. Give it to New: Inspect and ForceRelease go by that one.
func WithPrefix(prefix string) Option {
	return func(s *settings) {
		if strings.Contains(prefix, reserved) {
			s.fail(invalid("WithPrefix", fmt.Sprintf("%q", prefix), fmt.Sprintf("a string without %q", reserved)))
			return
		}
		s.prefix = prefix
	}
}

// WithReplicas has Acquire wait until n replicas of the Redis server, 0 to 64, have the lock: at most timeout, 1 ms to 1 s.
// If fewer have it by then, the lock is undone and Acquire says ErrUnavailable. It makes it unlikely, not impossible,
// that a failover forgets the lock: a replica without it may be the one that is promoted. Renewals do not wait. n = 0,
// the default, waits for none. Only Redis and Timestamp can do it; elsewhere it is an ErrInvalidOption.
func WithReplicas(n int, timeout time.Duration) Option {
	return func(s *settings) {
		switch {
		case n < 0 || n > maxReplicas:
			s.fail(invalid("WithReplicas", n, fmt.Sprintf("0 to %d replicas", maxReplicas)))
		case n > 0 && (timeout < time.Millisecond || timeout > maxReplicaTimeout):
			s.fail(invalid("WithReplicas", timeout, fmt.Sprintf("1ms to %v", maxReplicaTimeout)))
		default:
			s.replicas, s.replicaTimeout = n, timeout
		}
	}
}

// WithLabel says who holds the key, for people who inspect it: at most 128 bytes, host/pid unless set. No secrets.
func WithLabel(label string) Option {
	return func(s *settings) {
		if len(label) > maxLabel {
			s.fail(invalid("WithLabel", fmt.Sprintf("%d bytes", len(label)), fmt.Sprintf("0 to %d bytes", maxLabel)))
			return
		}
		s.label = label
	}
}

// WithTracer has t told what happens; see Tracer, and otellock for one. Nil, the default, means none. A Backend hears of
// the one that New is given.
func WithTracer(t Tracer) Option { return func(s *settings) { s.tracer = t } }

// processLabel is the default label: host/pid.
var processLabel = func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	label := fmt.Sprintf("%s/%d", host, os.Getpid())
	return label[max(0, len(label)-maxLabel):]
}()
