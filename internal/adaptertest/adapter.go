package adaptertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/core/locktest"
	"github.com/latchkit/latchkit/internal/admit"
)

// Adapter is an adapter in front of a service with two operations on an order, "pay" and "cancel", both locked by the
// order: the key is "order:" and its id.
type Adapter struct {
	// Serve starts the service, which ends with the test, and returns how to call it.
	Serve func(t *testing.T, s Service) Call
	// Locks makes what to lock with; nil: locktest.New.
	Locks func(t *testing.T) *core.Locks
	// Lose takes the key away from its holder, who is to notice within the TTL; nil: by ForceRelease.
	Lose func(ctx context.Context, locks *core.Locks, key string) error
}

func (a Adapter) lose(ctx context.Context, locks *core.Locks, key string) error {
	if a.Lose == nil {
		return locks.ForceRelease(ctx, key)
	}
	return a.Lose(ctx, locks, key)
}

func (a Adapter) locks(t *testing.T) *core.Locks {
	t.Helper()
	if a.Locks == nil {
		return locktest.New(t)
	}
	return a.Locks(t)
}

// Service is what an Adapter stands in front of.
type Service struct {
	Options Options
	// Handle is the handler of both operations. An error is a failure, ErrFailed one that the client has caused; the
	// bare cancellation of ctx is returned as it is.
	Handle func(ctx context.Context, op string) error
	// Deadline ends the context of each call, on the server's side and outside of the adapter. 0: none.
	Deadline time.Duration
}

// Options are those that every adapter has.
type Options struct {
	Locker               core.Locker
	Acquire              []core.Option
	Cooldown, RetryAfter time.Duration
	PerRoute             bool
	RefuseDegraded       bool
}

// ErrFailed makes a handler fail by the client's fault.
var ErrFailed = errors.New("failed")

// Call calls an operation on an order. The end of ctx is a client that goes away.
type Call func(ctx context.Context, op, id string) Answer

// Answer is what the client gets.
type Answer struct {
	// Row is why the call was turned away; 0 when the handler has run.
	Row admit.Row
	// Failed: the handler has run and failed.
	Failed bool
	// RetryAfter as the protocol tells it.
	RetryAfter time.Duration
	// Err: there was no answer.
	Err error
}

func (a Answer) handled() bool { return a.Row == 0 && !a.Failed && a.Err == nil }
