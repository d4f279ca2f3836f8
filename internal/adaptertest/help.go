package adaptertest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
)

func succeed(context.Context, string) error { return nil }

// gate keeps handlers until it is opened.
type gate chan struct{}

func newGate() gate { return make(gate) }

func (g gate) open() { close(g) }

func (g gate) handle(runs *atomic.Int32) func(context.Context, string) error {
	return func(context.Context, string) error {
		runs.Add(1)
		select {
		case <-g:
		case <-time.After(patience):
		}
		return nil
	}
}

// refusing is a Locker that never has anything but err.
func refusing(err error) core.Locker {
	return core.LockerFunc(func(context.Context, string, ...core.Option) (*core.Lease, error) { return nil, err })
}

// watchedLocker tells when an Acquire begins, and how the last one ended.
type watchedLocker struct {
	core.Locker
	calls chan struct{}
	errs  chan error
}

func (l *watchedLocker) Acquire(ctx context.Context, key string, opts ...core.Option) (*core.Lease, error) {
	l.calls <- struct{}{}
	lease, err := l.Locker.Acquire(ctx, key, opts...)
	l.errs <- err
	return lease, err
}

// left waits until the waiter has left the queue because its caller has gone.
func (l *watchedLocker) left(t *testing.T) {
	t.Helper()
	select {
	case err := <-l.errs:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the waiter got %v", err)
		}
	case <-time.After(patience):
		t.Error("the waiter is still in the queue")
	}
}

// alwaysDegraded grants everything as if its store were away.
type alwaysDegraded struct{ core.Backend }

func (b alwaysDegraded) Do(ctx context.Context, ops []*core.Op) {
	b.Backend.Do(ctx, ops)
	for _, op := range ops {
		if op.Verdict == core.Granted {
			op.Degraded, op.DegradedReason = true, "for the test"
		}
	}
}

func hold(t *testing.T, locks *core.Locks, key string) *core.Lease {
	t.Helper()
	lease, err := locks.Acquire(t.Context(), key)
	if err != nil {
		t.Fatalf("Acquire(%q): %v", key, err)
	}
	return lease
}

func release(t *testing.T, lease *core.Lease) {
	t.Helper()
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// wantFree wants the key to be free soon: an answer can overtake the release that follows it.
func wantFree(t *testing.T, locks *core.Locks, key string) {
	t.Helper()
	eventually(t, key+" to be free", func() bool {
		lease, err := locks.Acquire(t.Context(), key)
		if err != nil {
			return false
		}
		release(t, lease)
		return true
	})
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func wait(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("waited in vain")
	}
}
