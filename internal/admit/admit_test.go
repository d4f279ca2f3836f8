package admit

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/core/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func endedBy(cause error) context.Context {
	ctx, stop := context.WithCancelCause(context.Background())
	stop(cause)
	return ctx
}

func TestClassify(t *testing.T) {
	live, gone, shutdown := context.Background(), endedBy(nil), endedBy(errors.New("shutting down"))
	late, stop := context.WithTimeout(live, 0)
	defer stop()
	busy := &core.NotAcquiredError{Key: "k", RetryAfter: time.Second}
	for _, c := range []struct {
		name string
		ctx  context.Context
		err  error
		want Row
	}{
		{"busy", live, busy, Busy},
		{"busy, wrapped", live, fmt.Errorf("x: %w", busy), Busy},
		{"busy by a Locker's own error", live, core.ErrNotAcquired, Busy},
		{"completed", live, &core.NotAcquiredError{Completed: true}, Completed},
		{"busy, and the caller has gone meanwhile", gone, busy, Busy},
		{"gone", gone, fmt.Errorf("%w: %w", core.ErrNotAcquired, context.Canceled), Gone},
		{"the server shuts down", shutdown, fmt.Errorf("%w: %w", core.ErrNotAcquired, context.Canceled), Deadline},
		{"deadline", late, fmt.Errorf("%w: %w", core.ErrNotAcquired, context.DeadlineExceeded), Deadline},
		{"deadline, bare", late, context.DeadlineExceeded, Deadline},
		{"a timeout of the backend's", live, fmt.Errorf("%w: %w", core.ErrUnavailable, context.DeadlineExceeded), Unavailable},
		{"unavailable", live, core.ErrUnavailable, Unavailable},
		{"quarantine", live, fmt.Errorf("x: %w", &core.QuarantineError{RetryAfter: time.Minute}), Unavailable},
		{"closed", live, core.ErrClosed, Unavailable},
		{"too many", live, core.ErrTooManyWaiters, Unavailable},
		{"re-entry of a lost lease", live, core.ErrLost, Unavailable},
		{"conflict", live, core.ErrConflict, Misuse},
		{"option", live, core.ErrInvalidOption, Misuse},
		{"denied", live, core.ErrDenied, Misuse},
		{"none", live, core.ErrNoLocker, Misuse},
		{"unknown", live, errors.New("?"), Misuse},
		{"invalid key", live, core.ErrInvalidKey, BadKey},
		{"missing", live, Missing("x"), BadKey},
		{"not declared", live, NotDeclared("x"), Misuse},
		{"too large", live, TooLargeBody(1, nil), TooLarge},
		{"a verdict", live, fmt.Errorf("x: %w", &Verdict{Row: LeaseLost, Err: core.ErrLost}), LeaseLost},
	} {
		v := Classify(c.ctx, c.err)
		if v.Row != c.want || !errors.Is(v, c.err) && c.want != LeaseLost {
			t.Errorf("%s: %v (%v), want %v", c.name, v.Row, v.Err, c.want)
		}
	}
}

// A key function's error is the client's mistake whatever it is, and not shown.
func TestRefuseKey(t *testing.T) {
	secret := errors.New("secret")
	var g Guard
	v := g.RefuseKey(context.Background(), secret)
	if v.Row != BadKey || !errors.Is(v, secret) || !errors.Is(v, core.ErrInvalidKey) || v.Text() == "" {
		t.Errorf("%+v", v)
	}
	if v := g.RefuseKey(context.Background(), core.ErrUnavailable); v.Row != BadKey {
		t.Errorf("%+v", v)
	}
	if v := g.RefuseKey(endedBy(nil), context.Canceled); v.Row != Gone {
		t.Errorf("%+v", v)
	}
}

func TestLeave(t *testing.T) {
	locks := locktest.New(t)
	ctx := context.Background()
	for _, c := range []struct {
		name    string
		success bool
		lose    bool
		dead    bool
		want    Row // of the next; 0: admitted
	}{
		{"success", true, false, false, Completed},
		{"success of a caller that has gone", true, false, true, Completed},
		{"failure", false, false, false, 0},
		{"lost", true, true, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := Guard{Locker: locks, Cooldown: time.Minute}
			under, cancel := context.WithCancel(ctx)
			defer cancel()
			lease, v := g.Enter(under, c.name)
			if v != nil {
				t.Fatal(v)
			}
			if c.lose {
				if err := locks.ForceRelease(ctx, c.name); err != nil {
					t.Fatal(err)
				}
				<-lease.Context().Done()
			}
			if c.dead {
				cancel()
			}
			g.Leave(under, lease, c.success)
			lease, v = g.Enter(ctx, c.name)
			if c.want == 0 && v != nil || c.want != 0 && (v == nil || v.Row != c.want) {
				t.Errorf("the next: %+v, want %v", v, c.want)
			}
			g.Leave(ctx, lease, false)
		})
	}
	new(Guard).Leave(ctx, nil, true) // a lock that was not needed
}

func TestLost(t *testing.T) {
	locks := locktest.New(t)
	ctx := context.Background()
	g := &Guard{Locker: locks, RetryAfter: 3 * time.Second}
	lease, v := g.Enter(ctx, "k")
	if v != nil {
		t.Fatal(v)
	}
	if v := g.Lost(ctx, lease, context.Canceled); v != nil {
		t.Errorf("a lease that lives: %+v", v)
	}
	if err := locks.ForceRelease(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	<-lease.Context().Done()
	for err, want := range map[error]bool{
		context.Canceled: true, context.Cause(lease.Context()): true, errors.New("other"): false, nil: false,
	} {
		v := g.Lost(ctx, lease, err)
		if (v != nil) != want {
			t.Errorf("%v: %+v", err, v)
		}
		if v != nil && (v.Row != LeaseLost || !errors.Is(v, core.ErrLost) || v.RetryAfter != g.RetryAfter) {
			t.Errorf("%v: %+v", err, v)
		}
	}
	if v := g.Lost(endedBy(nil), lease, context.Canceled); v != nil {
		t.Errorf("a caller that has gone: %+v", v)
	}
	if v := new(Guard).Lost(ctx, lease, context.Canceled); v == nil || v.RetryAfter != DefaultRetryAfter {
		t.Errorf("advice unless set: %+v", v)
	}
	if v := g.Lost(ctx, nil, context.Canceled); v != nil {
		t.Errorf("no lease: %+v", v)
	}
}

// A Locker may append to the options it is given; requests must not write into each other's.
func TestOptionsAreNotShared(t *testing.T) {
	g := Guard{Acquire: make([]core.Option, 1, 8)}
	g.Locker = core.LockerFunc(func(_ context.Context, _ string, opts ...core.Option) (*core.Lease, error) {
		if cap(opts) != len(opts) {
			t.Errorf("%d options with room for %d", len(opts), cap(opts))
		}
		return nil, nil
	})
	if _, v := g.Enter(context.Background(), "k"); v != nil {
		t.Error(v)
	}
}

func TestEmptyKey(t *testing.T) {
	if _, v := new(Guard).Enter(context.Background(), ""); v == nil || v.Row != BadKey || !errors.Is(v, core.ErrInvalidKey) {
		t.Errorf("%+v", v)
	}
}
