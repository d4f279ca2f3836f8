package core

import (
	"context"
	"time"
)

// Tracer is told what the engine does; otellock turns it into spans and metrics. Its methods are called from many
// goroutines, must not block and must not call the engine. Without a Tracer the cost is a nil check.
//
// A context that a Tracer returns goes to the backend's trips only, never into the lease's, or a handler's spans
// would become children of one that has ended.
type Tracer interface {
	// AcquireStart is called when an Acquire begins; each is followed by one AcquireEnd with the returned context.
	AcquireStart(ctx context.Context, e AcquireStart) context.Context
	// AcquireEnd returns a mark, which the engine keeps with the hold and hands back in the events below. When
	// the Acquire failed the mark is dropped.
	AcquireEnd(ctx context.Context, e AcquireEnd) (mark any)
	// WaitStart and WaitEnd enclose the time in which an Acquire waits for another holder. They come in pairs
	// between AcquireStart and AcquireEnd.
	WaitStart(ctx context.Context, key string)
	WaitEnd(ctx context.Context, key string)
	// HoldStart and HoldEnd enclose a hold: from a single place each, in pairs whatever happens. Re-entry starts
	// no hold of its own.
	HoldStart(e HoldStart)
	HoldEnd(e HoldEnd)
	// ReleaseStart and ReleaseEnd enclose a Release that ends a hold, and the first that finds its hold lost.
	ReleaseStart(ctx context.Context, e ReleaseStart) context.Context
	ReleaseEnd(ctx context.Context, e ReleaseEnd)
	// Renewed is called after each renewal by the watchdog, successful or not.
	Renewed(e Renewal)
}

// Noter is a Tracer that leaves a note beside the lock in the backend, for those whom the lock keeps out; at most
// 128 bytes, more is cut off. It must hold no secret.
type Noter interface {
	Note(ctx context.Context) string
}

// BreakerTracer is a Tracer that wants to hear of a fallback's breaker. Calls are in order and hold no lock.
type BreakerTracer interface {
	Breaker(e BreakerEvent)
}

// ClockTracer is a Tracer that wants to hear of the clocks of a RedLock's nodes.
type ClockTracer interface {
	// ClockOffset tells how far the clock of node is ahead of this process's (negative: behind), give or take
	// half a round trip.
	ClockOffset(backend, node string, offset time.Duration)
}

// AcquireStart tells of an Acquire that begins.
type AcquireStart struct {
	Backend string
	Key     string // as given to Acquire, without the prefix
	Kind    Kind
	Fair    bool
	TTL     time.Duration
	Wait    time.Duration
	Label   string
}

// Outcome is how an Acquire ended.
type Outcome string

// The outcomes of an Acquire.
const (
	OutcomeAcquired  Outcome = "acquired"
	OutcomeContended Outcome = "contended" // it may not wait, and others hold the key
	OutcomeTimeout   Outcome = "timeout"   // its wait or its context's deadline ended
	OutcomeCanceled  Outcome = "canceled"  // its context was cancelled
	OutcomeError     Outcome = "error"
)

// AcquireEnd tells how an Acquire ended, and where its time went.
type AcquireEnd struct {
	AcquireStart
	Outcome  Outcome
	Err      error
	Lease    *Lease        // nil unless acquired
	Reentry  bool          // the context already held the key
	HandOff  bool          // passed on inside the process, without a trip
	Attempts int           // trips to the backend
	Waited   time.Duration // how long the Acquire took in all
	// The parts of Waited: behind others of this process, in trips to the backend, for a holder elsewhere.
	InGate, InBackend, ForHolder time.Duration
	// HolderMark is the mark of a holder in this process that kept the Acquire out, HolderNote the note of one
	// elsewhere, where they are known.
	HolderMark any
	HolderNote string
}

// HoldStart tells of a hold that begins.
type HoldStart struct {
	Backend  string
	Key      string
	Kind     Kind
	Degraded bool // granted without the store, by a fallback
	// DegradedReason is why, in a word or two of few values: Op.DegradedReason.
	DegradedReason string
}

// HoldEnd tells of a hold that has ended.
type HoldEnd struct {
	HoldStart
	Mark any
	Held time.Duration
	// Cause is ErrReleased, or ErrLost wrapped with its reason. WithMaxHold and Close end contexts, and no
	// holds.
	Cause error
	// Reason of a loss: "expired", "deleted", "taken", "unavailable", "forced", "closed"; empty otherwise.
	Reason string
}

// ReleaseStart tells of a Release that begins.
type ReleaseStart struct {
	Backend string
	Key     string
	Kind    Kind
	Mark    any
}

// ReleaseEnd tells how a Release ended.
type ReleaseEnd struct {
	ReleaseStart
	HandOff bool
	Err     error
}

// Renewal tells of a renewal by the watchdog.
type Renewal struct {
	Backend string
	Key     string
	Kind    Kind
	Mark    any
	TTL     time.Duration
	// Slack is what was left of the lease when the renewal was answered.
	Slack time.Duration
	Took  time.Duration
	Err   error // nil: renewed
}

// BreakerEvent tells of a transition of a fallback's breaker.
type BreakerEvent struct {
	Backend  string
	Node     string
	From, To string // "closed", "open", "half-open"; From is empty for the state at the start
	At       time.Time
}
