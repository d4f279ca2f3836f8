package core

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
)

// Locker is what adapters and callers lock with. *Locks implements it.
type Locker interface {
	// Acquire returns a lease on key, or an error of this package.
	Acquire(ctx context.Context, key string, opts ...Option) (*Lease, error)
}

// LockerFunc is a function as a Locker.
type LockerFunc func(ctx context.Context, key string, opts ...Option) (*Lease, error)

// Acquire calls f.
func (f LockerFunc) Acquire(ctx context.Context, key string, opts ...Option) (*Lease, error) {
	return f(ctx, key, opts...)
}

// Do runs fn under the lock. fn's context is the lease's: it ends when the lease is lost. Do releases when fn
// returns or panics, also when ctx is dead by then.
//
// The error is that of Acquire (fn did not run) or fn's own, joined with ErrLost when the lease was lost before fn
// returned, for then somebody else may have run meanwhile. A release that could not reach the backend is no error
// of Do: fn has run, and the key goes with the next attempt of the engine or with its TTL.
func Do(ctx context.Context, l Locker, key string, fn func(ctx context.Context) error, opts ...Option) (err error) {
	lease, err := l.Acquire(ctx, key, opts...)
	if err != nil {
		return err
	}
	if lease == nil {
		return fn(ctx) // l says that no lock is needed
	}
	defer func() {
		if rerr := lease.Release(ctx); errors.Is(rerr, ErrLost) {
			err = errors.Join(err, rerr)
		}
	}()
	return fn(lease.Context())
}

// FromContext returns the innermost lease under which ctx runs, held or not: one whose Context is an ancestor of ctx.
func FromContext(ctx context.Context) (*Lease, bool) {
	lease, ok := ctx.Value(leaseKey{}).(*Lease)
	return lease, ok
}

type leaseKey struct{}

var defaultLocker atomic.Pointer[Locker]

// SetDefault sets what adapters without a Locker of their own use, from the next request on; nil means none. It may be
// called at any time, from any goroutine.
func SetDefault(l Locker) {
	if l == nil {
		defaultLocker.Store(nil)
		return
	}
	defaultLocker.Store(&l)
}

// Default returns what SetDefault set, or nil. It may be called concurrently.
func Default() Locker {
	if l := defaultLocker.Load(); l != nil {
		return *l
	}
	return nil
}

// JoinKey makes one key of several parts: unambiguous whatever the parts contain, so that ("a:b", "c") and
// ("a", "b:c") are two keys. Parts are joined with ":"; a backslash or a colon inside a part is escaped by a
// backslash. A list of one part is that part as it is when it needs no escape. No parts give "".
func JoinKey(parts ...string) string {
	var b strings.Builder
	for i, p := range parts {
		if i > 0 {
			b.WriteByte(':')
		}
		_, _ = joinEscape.WriteString(&b, p) // a Builder never fails
	}
	return b.String()
}

// An empty part stays apart from no part at all, since the number of colons that are not escaped tells how many
// parts there are; no parts and one empty part are the same empty key, which Acquire refuses.
var joinEscape = strings.NewReplacer(`\`, `\\`, `:`, `\:`)

// checkKey refuses the empty key. All other bytes are fine.
func checkKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: %s: allowed is any string of at least 1 byte", ErrInvalidKey, strconv.Quote(key))
	}
	return nil
}
