package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// MultiLease is the right to work on several keys at once. All methods may be called concurrently, and on a nil
// MultiLease.
type MultiLease struct {
	leases []*Lease
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// AcquireAll takes a lease on every key, or on none. keys are sorted, so that callers who name them in different orders
// never wait for each other in a circle, and each is taken once however often it is named. No keys at all are an
// ErrInvalidKey.
//
// Where one server, or one slot of a Cluster, has all keys, 256 at most, l is a *Locks, and the holds are exclusive and
// neither fair nor WithReplicas, one trip takes them all. Elsewhere, and when somebody holds one of them and the caller may
// wait, they are taken one after the other. The wait is for all keys together. opts are those of each key.
//
// Errors are those of Acquire, with the key at fault in a *NotAcquiredError. What was taken by then is released, also
// when ctx has ended; a release that fails is the engine's to repeat.
func AcquireAll(ctx context.Context, l Locker, keys []string, opts ...Option) (*MultiLease, error) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: AcquireAll of no keys: allowed is one or more", ErrInvalidKey)
	}
	base := settings{wait: -1}
	locks, ours := l.(*Locks)
	if ours {
		base = locks.settings
	}
	s, err := base.with(opts)
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(s.wait)
	ctx, cancel := context.WithCancelCause(ctx)
	var leases []*Lease
	if ours {
		leases, err = locks.acquireTogether(ctx, keys, s)
	}
	if !ours || errors.Is(err, errApart) {
		if s.wait > 0 && s.wait != Forever {
			left := func() Option { return WithWait(max(0, time.Until(until))) }
			leases, err = acquireInTurn(ctx, l, keys, func() []Option { return append(slices.Clip(opts), left()) })
		} else {
			leases, err = acquireInTurn(ctx, l, keys, func() []Option { return opts })
		}
	}
	if err != nil {
		cancel(err)
		return nil, err
	}
	m := &MultiLease{leases: leases, ctx: innermost(ctx, leases), cancel: cancel}
	// Each lease's context is a child of the one before, and all are children of ctx: so the last ends with any of
	// them, and they all end with the last.
	context.AfterFunc(m.ctx, func() { cancel(context.Cause(m.ctx)) })
	return m, nil
}

// acquireInTurn takes the keys one after the other, each under the lease before, and gives back what it has when one
// cannot be had.
func acquireInTurn(ctx context.Context, l Locker, keys []string, options func() []Option) (leases []*Lease, err error) {
	at := ctx
	defer func() {
		if err != nil {
			_ = releaseAll(ctx, leases) // the engine repeats what fails
			leases = nil
		}
	}()
	for _, key := range keys {
		lease, err := l.Acquire(at, key, options()...)
		if err != nil {
			if cause := context.Cause(at); errors.Is(cause, ErrLost) {
				err = fmt.Errorf("latchkit: acquire %q: an earlier one of its keys was lost: %w", key, cause)
			}
			return leases, err
		}
		leases = append(leases, lease)
		at = innermost(ctx, leases)
	}
	return leases, nil
}

// innermost is the context of the last lease; a nil one, which stands for a lock that was not needed, has none.
func innermost(ctx context.Context, leases []*Lease) context.Context {
	for _, lease := range slices.Backward(leases) {
		if lease != nil {
			return lease.Context()
		}
	}
	return ctx
}

// Leases returns the leases in the order of their keys.
func (m *MultiLease) Leases() []*Lease {
	if m == nil {
		return nil
	}
	return slices.Clone(m.leases)
}

// Context returns a child of AcquireAll's context that ends with the first of the leases that ends, whose cause it has:
// losing one loses all. The contexts of the others end then too; their keys stay until Release. An Acquire of any of the
// keys under it is a re-entry.
func (m *MultiLease) Context() context.Context {
	if m == nil {
		return context.Background()
	}
	return m.ctx
}

// Release gives all keys back, and tries each whatever becomes of the others. Its error joins theirs; see Lease.Release.
func (m *MultiLease) Release(ctx context.Context) error {
	if m == nil {
		return nil
	}
	defer m.cancel(ErrReleased)
	return releaseAll(ctx, m.leases)
}

// releaseAll releases all at once, so that they share trips.
func releaseAll(ctx context.Context, leases []*Lease) error {
	errs := make([]error, len(leases))
	var wg sync.WaitGroup
	for i, lease := range leases {
		wg.Go(func() { errs[i] = lease.Release(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
