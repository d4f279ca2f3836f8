package core_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/core/locktest"
)

func TestDoReleasesWhateverHappens(t *testing.T) {
	locks := locktest.New(t)
	boom := errors.New("boom")
	if err := core.Do(t.Context(), locks, "k", func(context.Context) error { return boom }); err != boom {
		t.Errorf("got %v, want fn's own error", err)
	}
	func() {
		defer func() {
			if recover() != "panic" {
				t.Error("the panic did not come through")
			}
		}()
		core.Do(t.Context(), locks, "k", func(context.Context) error { panic("panic") })
	}()
	ctx, cancel := context.WithCancel(t.Context())
	if err := core.Do(ctx, locks, "k", func(context.Context) error { cancel(); return nil }); err != nil {
		t.Error(err)
	}
	release(t, acquire(t, locks, "k"))
	acquired := acquire(t, locks, "held")
	ran := false
	err := core.Do(t.Context(), locks, "held", func(context.Context) error { ran = true; return nil })
	wantErr(t, err, core.ErrNotAcquired)
	if ran {
		t.Error("fn ran without the lock")
	}
	release(t, acquired)
}

func TestDoJoinsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := locktest.New(t)
		boom := errors.New("boom")
		err := core.Do(t.Context(), locks, "k", func(ctx context.Context) error {
			<-ctx.Done()
			wantErr(t, context.Cause(ctx), core.ErrLost)
			return boom
		}, core.WithTTL(time.Second), core.WithoutRenewal())
		wantErr(t, err, boom, core.ErrLost)
	})
}

func TestNilAndZeroLeases(t *testing.T) {
	for _, lease := range []*core.Lease{nil, {}} {
		if lease.Key() != "" || lease.Owner() != "" || lease.Backend() != "" || lease.Fence() != 0 || lease.Degraded() ||
			lease.Remaining() != 0 || !lease.Deadline().IsZero() || lease.Context() == nil {
			t.Error("a lease that stands for no lock knows something")
		}
		if err := errors.Join(lease.Release(t.Context()), lease.ReleaseAfter(t.Context(), time.Second),
			lease.Extend(t.Context(), time.Second)); err != nil {
			t.Error(err)
		}
	}
}

func TestDefaultLocker(t *testing.T) {
	if core.Default() != nil {
		t.Error("there is a default before SetDefault")
	}
	locks := locktest.New(t)
	core.SetDefault(locks)
	if core.Default() != locks {
		t.Error("Default is not what was set")
	}
	core.SetDefault(nil)
	if core.Default() != nil {
		t.Error("SetDefault(nil) does not mean none")
	}
}

// The lease's context is a child of Acquire's, and tells apart the ways in which it ends.
func TestLeaseContext(t *testing.T) {
	locks := locktest.New(t)
	type ctxKey struct{}
	parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), ctxKey{}, "v"))
	lease, err := locks.Acquire(parent, "k")
	if err != nil {
		t.Fatal(err)
	}
	ctx := lease.Context()
	if ctx.Value(ctxKey{}) != "v" || ctx != lease.Context() {
		t.Error("the context is not a steady child of the caller's")
	}
	if found, ok := core.FromContext(ctx); !ok || found != lease {
		t.Error("FromContext does not find the lease")
	}
	if _, ok := core.FromContext(parent); ok {
		t.Error("FromContext finds a lease in the parent")
	}
	gone := errors.New("gone")
	cancel(gone)
	<-ctx.Done()
	if context.Cause(ctx) != gone {
		t.Errorf("cause %v, want the parent's", context.Cause(ctx))
	}
	_, err = locks.Acquire(t.Context(), "k")
	wantErr(t, err, core.ErrNotAcquired) // the end of the parent does not release
	release(t, lease)

	never := acquire(t, locks, "k") // whose context is asked for only after its end
	release(t, never)
	wantErr(t, context.Cause(never.Context()), core.ErrReleased)
}

func FuzzJoinKey(f *testing.F) {
	f.Add("a:b", "c", "a", "b:c")
	f.Add(`a\`, "b", "a", `\b`)
	f.Add("", "", "", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		same := a == c && b == d
		if (core.JoinKey(a, b) == core.JoinKey(c, d)) != same {
			t.Errorf("JoinKey(%q, %q) = %q, JoinKey(%q, %q) = %q", a, b, core.JoinKey(a, b), c, d, core.JoinKey(c, d))
		}
		if core.JoinKey(a, b) == core.JoinKey(c) {
			t.Errorf("two parts %q, %q look like the one part %q", a, b, c)
		}
		if core.JoinKey(a, b, c) == core.JoinKey(a, core.JoinKey(b, c)) && (b != "" || c != "") && core.JoinKey(b, c) != b+c {
			t.Errorf("nesting of %q, %q, %q is lost", a, b, c)
		}
	})
}

// A Locker may say that no lock is needed: fn runs under the caller's context then.
func TestDoWithoutALease(t *testing.T) {
	none := core.LockerFunc(func(context.Context, string, ...core.Option) (*core.Lease, error) { return nil, nil })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := core.Do(ctx, none, "k", func(ctx context.Context) error { return ctx.Err() })
	wantErr(t, err, context.Canceled)
}

// L18, as it happens: under the context of the lease that was lost.
func TestReentryUnderTheContextOfALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := locktest.New(t)
		outer := acquire(t, locks, "k", core.WithTTL(time.Second), core.WithoutRenewal())
		<-outer.Context().Done()
		_, err := locks.Acquire(outer.Context(), "k")
		wantErr(t, err, core.ErrLost)
	})
}

// A hold that lasts keeps nothing of those that came and went inside it.
func TestReentryIsForgotten(t *testing.T) {
	locks := locktest.New(t)
	outer := acquire(t, locks, "k")
	var inner []*core.Lease
	for range 10 {
		lease, err := locks.Acquire(outer.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		inner = append(inner, lease)
	}
	for _, i := range []int{3, 9, 0, 5, 1, 2, 4, 8, 6, 7} {
		release(t, inner[i])
	}
	if n := outer.Handles(); n != 1 {
		t.Errorf("%d leases are kept track of, want the outer one", n)
	}
	release(t, outer)
}
