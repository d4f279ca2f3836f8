package core

import (
	"errors"
	"fmt"
	"time"
)

// The errors of this package. Every error that it returns answers to at least one of them through errors.Is, or to the
// error of the context that ended the call; causes below (a network error, a reply of the server) stay reachable through
// errors.As.
var (
	// ErrNotAcquired: somebody else holds the key. Errors of this kind are a *NotAcquiredError.
	ErrNotAcquired = errors.New("latchkit: lock not acquired")
	// ErrUnavailable: the backend could not serve, so nothing is known about the key.
	ErrUnavailable = errors.New("latchkit: backend unavailable")
	// ErrLost: the lease ended before it was released: it expired, or its key was taken away.
	ErrLost = errors.New("latchkit: lease lost")
	// ErrReleased is the cause of a lease's context after Release.
	ErrReleased = errors.New("latchkit: lease released")
	// ErrMaxHold is the cause of a lease's context after WithMaxHold has passed.
	ErrMaxHold = errors.New("latchkit: lease held for its maximum time")
	// ErrNotHeld: the lease was released before.
	ErrNotHeld = errors.New("latchkit: lease not held")
	// ErrInvalidKey: the key is empty, or AcquireAll was given none.
	ErrInvalidKey = errors.New("latchkit: invalid key")
	// ErrInvalidOption: an option is out of its range, or the backend cannot do what it asks for.
	ErrInvalidOption = errors.New("latchkit: invalid option")
	// ErrClosed: Close was called, of the engine or of the Redis client.
	ErrClosed = errors.New("latchkit: closed")
	// ErrNoLocker: neither a Locker was given nor a default one set.
	ErrNoLocker = errors.New("latchkit: no locker: give one, or call core.SetDefault")
	// ErrConflict: what stands at the key is not a lock. It is left as it is.
	ErrConflict = errors.New("latchkit: key holds something that is not a lock")
	// ErrTooManyWaiters: the key has as many waiters in this process as it may have.
	ErrTooManyWaiters = errors.New("latchkit: too many waiters")
	// ErrDenied: the server refused the command for lack of rights (NOAUTH, WRONGPASS, NOPERM). Trying again,
	// or locally, would hide a mistake in the set-up, so neither happens.
	ErrDenied = errors.New("latchkit: backend denied access")
)

// NotAcquiredError says that somebody else holds Key, or has completed what it protects.
type NotAcquiredError struct {
	// Key as it was given to Acquire, without the prefix.
	Key string
	// RetryAfter is how long the holder's lease still runs unless it is renewed, or what is left of the
	// cooldown when Completed is set. Zero means unknown.
	RetryAfter time.Duration
	// Completed: the work was done (ReleaseAfter); the key is kept to turn repetitions away.
	Completed bool

	cause error  // the context's error, when that ended the wait
	note  string // what the holder's Tracer left beside the lock
	mark  any    // what the Tracer left on a holder of this process
}

func (e *NotAcquiredError) Error() string {
	msg := fmt.Sprintf("%v: %q is held", ErrNotAcquired, e.Key)
	if e.Completed {
		msg = fmt.Sprintf("%v: %q was completed", ErrNotAcquired, e.Key)
	}
	if e.RetryAfter > 0 {
		msg += fmt.Sprintf(" for up to %v more", e.RetryAfter)
	}
	if e.cause != nil {
		msg += ": " + e.cause.Error()
	}
	return msg
}

// Is makes errors.Is(err, ErrNotAcquired) true.
func (e *NotAcquiredError) Is(target error) bool { return target == ErrNotAcquired }

// Unwrap gives the error of the context that ended the wait, or nil.
func (e *NotAcquiredError) Unwrap() error { return e.cause }

// QuarantineError says that too few nodes of a RedLock may grant a lock, because others have lost their memory and wait
// until every lock that they may have forgotten has run out. It is an ErrUnavailable. An Acquire with WithWait waits it
// out.
type QuarantineError struct {
	// RetryAfter is how long it takes until a majority may grant locks again.
	RetryAfter time.Duration
}

func (e *QuarantineError) Error() string {
	return fmt.Sprintf("%v: nodes that have lost their memory grant nothing for %v more", ErrUnavailable, e.RetryAfter)
}

// Is makes errors.Is(err, ErrUnavailable) true.
func (e *QuarantineError) Is(target error) bool { return target == ErrUnavailable }

// invalid returns an ErrInvalidOption that names the option, what was given and what is allowed.
func invalid(option string, given any, allowed string) error {
	return fmt.Errorf("%w: %s(%v): allowed is %s", ErrInvalidOption, option, given, allowed)
}
