package admit

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/latchkit/latchkit/core"
)

// Row is a row of the table of replies.
type Row uint8

// The rows. What each becomes on the wire is the adapter's.
const (
	Busy        Row = iota + 1 // another request holds the key
	Completed                  // a request has succeeded; the key cools down
	BadKey                     // the key is missing, malformed or repeated; a key function's error
	TooLarge                   // the body that holds the key is over the cap
	Unavailable                // the backend is down or closed, or too many wait
	Deadline                   // the wait was ended by a deadline of the server
	Gone                       // the caller went away while it waited
	Misuse                     // an error of the programmer or the set-up; logged
	LeaseLost                  // the lease ended under the handler
)

func (r Row) String() string {
	names := [...]string{"", "busy", "completed", "bad key", "too large", "unavailable", "deadline", "gone", "misuse", "lease lost"}
	return names[min(int(r), len(names)-1)]
}

// passing tells whether it makes sense to come again with the same request.
func (r Row) passing() bool {
	return r == Busy || r == Completed || r == Unavailable || r == Deadline || r == LeaseLost
}

// Verdict is why a request was not admitted, or what became of it when its lease was lost. It is an error, so that it
// can travel as one.
type Verdict struct {
	Row Row
	// RetryAfter is when to come again, exactly; 0: no advice.
	RetryAfter time.Duration
	// Err is the reason, for errors.Is and errors.As. Its text is not for the caller: see Text.
	Err error
}

// Error is for logs.
func (v *Verdict) Error() string { return v.Row.String() + ": " + v.Err.Error() }

// Unwrap gives the reason.
func (v *Verdict) Unwrap() error { return v.Err }

// Text is what may be shown to the caller beside the Row: our own words only. It is empty where the Row says it all.
func (v *Verdict) Text() string {
	if key, ok := errors.AsType[*KeyError](v.Err); ok && (v.Row == BadKey || v.Row == TooLarge) {
		return key.Text
	}
	return ""
}

// log tells of what only the people who run the service can mend.
func (v *Verdict) log(ctx context.Context) {
	switch v.Row {
	case Misuse:
		slog.ErrorContext(ctx, "latchkit: request refused by a mistake in the program or its set-up", "error", v.Err)
	case Unavailable:
		if n := outages.count(time.Now()); n > 0 {
			slog.WarnContext(ctx, "latchkit: requests are refused, for their locks cannot be had", "requests", n, "error", v.Err)
		}
	}
}

// Classify says in which Row an error of Acquire under ctx belongs. Anything it does not know is Misuse: a Locker that
// fails in its own way must not look like a busy key, or like an outage that passes.
func Classify(ctx context.Context, err error) *Verdict {
	if known, ok := errors.AsType[*Verdict](err); ok {
		again := *known
		return &again
	}
	if v := ended(ctx, err); v != nil {
		return v
	}
	if key, ok := errors.AsType[*KeyError](err); ok {
		return &Verdict{Row: key.Row, Err: err}
	}
	if held, ok := errors.AsType[*core.NotAcquiredError](err); ok {
		row := Busy
		if held.Completed {
			row = Completed
		}
		return &Verdict{Row: row, RetryAfter: held.RetryAfter, Err: err}
	}
	if quarantine, ok := errors.AsType[*core.QuarantineError](err); ok {
		return &Verdict{Row: Unavailable, RetryAfter: quarantine.RetryAfter, Err: err}
	}
	switch {
	case isAny(err, core.ErrConflict, core.ErrInvalidOption, core.ErrDenied, core.ErrNoLocker):
		return &Verdict{Row: Misuse, Err: err}
	case isAny(err, core.ErrNotAcquired):
		return &Verdict{Row: Busy, Err: err}
	case isAny(err, core.ErrInvalidKey):
		return &Verdict{Row: BadKey, Err: err}
	case isAny(err, core.ErrUnavailable, core.ErrClosed, core.ErrTooManyWaiters, core.ErrLost, core.ErrReleased,
		core.ErrNotHeld, core.ErrMaxHold):
		// The last four: the request runs under a lease of the same key that has ended.
		return &Verdict{Row: Unavailable, Err: err}
	default:
		return &Verdict{Row: Misuse, Err: err}
	}
}

// classifyKey says in which Row an error of a key function belongs.
func classifyKey(ctx context.Context, err error) *Verdict {
	if v := ended(ctx, err); v != nil {
		return v
	}
	key, ok := errors.AsType[*KeyError](err)
	if !ok {
		key = &KeyError{Row: BadKey, Text: "the request carries no usable key", Cause: err}
		err = key
	}
	return &Verdict{Row: key.Row, Err: err}
}

// ended is the Verdict when it was ctx that ended the wait. An error that merely contains a timeout of the backend's
// is not that, so ctx itself must have ended.
func ended(ctx context.Context, err error) *Verdict {
	cause := ctx.Err()
	if cause == nil || !isAny(err, cause, context.Cause(ctx)) {
		return nil
	}
	// A server that cancels for a reason of its own (it shuts down) says so by a cause; a caller that has gone
	// leaves none. The former still gets an answer.
	if errors.Is(cause, context.Canceled) && context.Cause(ctx) == cause {
		return &Verdict{Row: Gone, Err: err}
	}
	return &Verdict{Row: Deadline, Err: err}
}

func isAny(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}
