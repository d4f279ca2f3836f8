package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/admit"
)

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

// Run runs the cases that every adapter must pass.
func Run(t *testing.T, a Adapter) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Adapter)
	}{
		{"R1 one of fifty runs", oneOfFifty},
		{"R2 two orders side by side", sideBySide},
		{"R3 a panic frees the key", panicFrees},
		{"R4 a client that hangs up does not free the key", hangUp},
		{"R13 advice when to come again", advice},
		{"R14 cooldown after success only", cooldown},
		{"R15 backend down is not busy", backendDown},
		{"R15 other errors of the lock", lockErrors},
		{"R23 a client that goes away leaves the queue", leavesQueue},
		{"R24 the server's deadline ends the wait", serverDeadline},
		{"R27 cooldown of a resource and of an operation", cooldownPerRoute},
		{"R29 lease lost under the handler", leaseLost},
		{"degraded leases", degraded},
		{"a wait that is served", waits},
		{"a lock that was not needed", noLease},
		{"no locker, and the default one", defaultLocker},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, a) })
	}
}

func oneOfFifty(t *testing.T, a Adapter) {
	var runs, busy, handled atomic.Int32
	gate := newGate()
	call := a.Serve(t, Service{Options: Options{Locker: a.locks(t)}, Handle: gate.handle(&runs)})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			switch answer := call(t.Context(), "pay", "42"); {
			case answer.handled():
				handled.Add(1)
			case answer.Row == admit.Busy:
				busy.Add(1)
			default:
				t.Errorf("answer: %+v", answer)
			}
		})
	}
	eventually(t, "49 refusals", func() bool { return busy.Load() == 49 })
	gate.open()
	all.Wait()
	if runs.Load() != 1 || handled.Load() != 1 {
		t.Errorf("%d runs, %d handled; want 1 and 1", runs.Load(), handled.Load())
	}
	if again := call(t.Context(), "pay", "42"); !again.handled() {
		t.Errorf("afterwards: %+v", again)
	}
}

func sideBySide(t *testing.T, a Adapter) {
	var runs atomic.Int32
	gate := newGate()
	call := a.Serve(t, Service{Options: Options{Locker: a.locks(t)}, Handle: gate.handle(&runs)})
	var all sync.WaitGroup
	for _, id := range []string{"1", "2"} {
		all.Go(func() {
			if answer := call(t.Context(), "pay", id); !answer.handled() {
				t.Errorf("order %s: %+v", id, answer)
			}
		})
	}
	eventually(t, "both to run", func() bool { return runs.Load() == 2 })
	if answer := call(t.Context(), "cancel", "1"); answer.Row != admit.Busy {
		t.Errorf("another operation on order 1: %+v, want busy", answer)
	}
	gate.open()
	all.Wait()
}

func panicFrees(t *testing.T, a Adapter) {
	locks := a.locks(t)
	var panics atomic.Bool
	panics.Store(true)
	call := a.Serve(t, Service{
		Options: Options{Locker: locks, Cooldown: time.Minute},
		Handle: func(context.Context, string) error {
			if panics.Load() {
				panic("as the case wants it")
			}
			return nil
		},
	})
	if answer := call(t.Context(), "pay", "42"); !answer.Failed {
		t.Errorf("the panic did not reach the recovery: %+v", answer)
	}
	wantFree(t, locks, "order:42")
	panics.Store(false)
	if answer := call(t.Context(), "pay", "42"); !answer.handled() {
		t.Errorf("afterwards: %+v", answer)
	}
}

func hangUp(t *testing.T, a Adapter) {
	locks := a.locks(t)
	running, finish := make(chan struct{}), make(chan struct{})
	call := a.Serve(t, Service{Options: Options{Locker: locks}, Handle: func(ctx context.Context, _ string) error {
		close(running)
		<-ctx.Done() // the client has gone
		<-finish
		return ctx.Err()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		call(ctx, "pay", "42")
	}()
	wait(t, running)
	cancel()
	wait(t, gone)
	if answer := call(t.Context(), "pay", "42"); answer.Row != admit.Busy {
		t.Errorf("while the handler runs: %+v, want busy", answer)
	}
	close(finish)
	wantFree(t, locks, "order:42")
}

func advice(t *testing.T, a Adapter) {
	held := func(left time.Duration) core.Locker {
		return refusing(&core.NotAcquiredError{Key: "order:42", RetryAfter: left})
	}
	for _, c := range []struct {
		name   string
		locker core.Locker
		set    time.Duration
		want   time.Duration
	}{
		{"1 s unless set", held(30 * time.Second), 0, time.Second},
		{"1 s where nothing is known", held(0), 0, time.Second},
		{"as configured", held(30 * time.Second), 7 * time.Second, 7 * time.Second},
		{"never beyond the holder's lease", held(2200 * time.Millisecond), 7 * time.Second, 2200 * time.Millisecond},
		{"nor what is usual", held(300 * time.Millisecond), 0, 300 * time.Millisecond},
		{"what is left of a cooldown", refusing(&core.NotAcquiredError{Completed: true, RetryAfter: 4100 * time.Millisecond}),
			time.Second, 4100 * time.Millisecond},
		{"backend down", refusing(core.ErrUnavailable), 3 * time.Second, 3 * time.Second},
		{"what is left of a quarantine", refusing(&core.QuarantineError{RetryAfter: 41 * time.Second}), time.Second, 41 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			call := a.Serve(t, Service{Options: Options{Locker: c.locker, RetryAfter: c.set}, Handle: succeed})
			answer := call(t.Context(), "pay", "42")
			if roundedUp := (c.want + time.Second - 1).Truncate(time.Second); answer.RetryAfter != c.want &&
				answer.RetryAfter != roundedUp {
				t.Errorf("retry after %v, want %v: %+v", answer.RetryAfter, c.want, answer)
			}
		})
	}
}

func cooldown(t *testing.T, a Adapter) {
	var outcome atomic.Value
	set := func(err error) { outcome.Store(&err) }
	locks := a.locks(t)
	call := a.Serve(t, Service{
		Options: Options{Locker: locks, Cooldown: 5 * time.Second},
		Handle:  func(context.Context, string) error { return *outcome.Load().(*error) },
	})
	for _, failure := range []error{ErrFailed, errors.New("the server's fault")} {
		set(failure)
		for range 2 {
			if answer := call(t.Context(), "pay", "42"); !answer.Failed {
				t.Errorf("after %v: %+v, want it to run at once", failure, answer)
			}
		}
	}
	set(nil)
	if answer := call(t.Context(), "pay", "42"); !answer.handled() {
		t.Fatalf("first: %+v", answer)
	}
	answer := call(t.Context(), "pay", "42")
	if answer.Row != admit.Completed || answer.RetryAfter <= 4*time.Second || answer.RetryAfter > 5*time.Second {
		t.Errorf("second: %+v, want completed, and what is left of 5 s", answer)
	}
	if answer := call(t.Context(), "pay", "43"); !answer.handled() {
		t.Errorf("another order: %+v", answer)
	}
}

func backendDown(t *testing.T, a Adapter) {
	for _, err := range []error{core.ErrUnavailable, core.ErrClosed, core.ErrTooManyWaiters,
		fmt.Errorf("%w: %w", core.ErrUnavailable, context.DeadlineExceeded)} {
		call := a.Serve(t, Service{Options: Options{Locker: refusing(err)}, Handle: succeed})
		if answer := call(t.Context(), "pay", "42"); answer.Row != admit.Unavailable {
			t.Errorf("%v: %+v, want unavailable", err, answer)
		}
	}
}

func lockErrors(t *testing.T, a Adapter) {
	for _, err := range []error{core.ErrConflict, core.ErrInvalidOption, core.ErrDenied, errors.New("of a Locker's own")} {
		call := a.Serve(t, Service{Options: Options{Locker: refusing(err)}, Handle: succeed})
		if answer := call(t.Context(), "pay", "42"); answer.Row != admit.Misuse {
			t.Errorf("%v: %+v, want misuse", err, answer)
		}
	}
}

func leavesQueue(t *testing.T, a Adapter) {
	locks := a.locks(t)
	locker := &watchedLocker{Locker: locks, calls: make(chan struct{}, 1), errs: make(chan error, 1)}
	call := a.Serve(t, Service{
		Options: Options{Locker: locker, Acquire: []core.Option{core.WithWait(core.Forever)}}, Handle: succeed,
	})
	holder := hold(t, locks, "order:42")
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		call(ctx, "pay", "42")
	}()
	wait(t, locker.calls)
	cancel()
	wait(t, gone)
	locker.left(t)
	release(t, holder)
}

func serverDeadline(t *testing.T, a Adapter) {
	locks := a.locks(t)
	call := a.Serve(t, Service{
		Options:  Options{Locker: locks, Acquire: []core.Option{core.WithWait(core.Forever)}},
		Handle:   succeed,
		Deadline: 50 * time.Millisecond,
	})
	holder := hold(t, locks, "order:42")
	answer := call(t.Context(), "pay", "42")
	// On the wire a deadline may look like any other reason to come again later.
	if answer.Row != admit.Deadline && (answer.Row != admit.Unavailable || answer.RetryAfter != time.Second) {
		t.Errorf("%+v, want the deadline's row", answer)
	}
	release(t, holder)
}

func cooldownPerRoute(t *testing.T, a Adapter) {
	for _, perRoute := range []bool{false, true} {
		call := a.Serve(t, Service{
			Options: Options{Locker: a.locks(t), Cooldown: time.Minute, PerRoute: perRoute}, Handle: succeed,
		})
		if answer := call(t.Context(), "pay", "42"); !answer.handled() {
			t.Fatalf("pay: %+v", answer)
		}
		answer := call(t.Context(), "cancel", "42")
		if perRoute && !answer.handled() {
			t.Errorf("cancel after pay, per route: %+v", answer)
		}
		if !perRoute && answer.Row != admit.Completed {
			t.Errorf("cancel after pay: %+v, want completed", answer)
		}
	}
}

func leaseLost(t *testing.T, a Adapter) {
	locks := a.locks(t)
	causes := make(chan error, 1)
	var answers atomic.Bool
	call := a.Serve(t, Service{
		Options: Options{Locker: locks, Cooldown: time.Minute, RetryAfter: 7 * time.Second,
			Acquire: []core.Option{core.WithTTL(time.Second)}},
		Handle: func(ctx context.Context, _ string) error {
			if err := a.lose(t.Context(), locks, "order:42"); err != nil {
				t.Errorf("losing the lease: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(patience):
			}
			causes <- context.Cause(ctx)
			if answers.Load() {
				return nil
			}
			return ctx.Err()
		},
	})
	for _, answered := range []bool{true, false} {
		answers.Store(answered)
		answer := call(t.Context(), "pay", "42")
		if cause := <-causes; !errors.Is(cause, core.ErrLost) {
			t.Errorf("the context ended with %v, want ErrLost", cause)
		}
		if answered && !answer.handled() {
			t.Errorf("an answer did not stand: %+v", answer)
		}
		if !answered && answer.Row != admit.Unavailable && answer.Row != admit.LeaseLost && !answer.Failed {
			t.Errorf("a returned cancellation: %+v, want to come again", answer)
		}
		if (answer.Row == admit.Unavailable || answer.Row == admit.LeaseLost) && answer.RetryAfter != 7*time.Second {
			t.Errorf("when to come again: %+v, want 7 s", answer)
		}
		wantFree(t, locks, "order:42")
	}
}

func degraded(t *testing.T, a Adapter) {
	locks, err := core.New(alwaysDegraded{core.Local()})
	if err != nil {
		t.Fatal(err)
	}
	for _, refuse := range []bool{false, true} {
		call := a.Serve(t, Service{Options: Options{Locker: locks, RefuseDegraded: refuse}, Handle: succeed})
		for range 2 { // the second finds a key that the first has freed
			answer := call(t.Context(), "pay", "42")
			if refuse && answer.Row != admit.Unavailable || !refuse && !answer.handled() {
				t.Errorf("refuse %v: %+v", refuse, answer)
			}
		}
	}
}

func waits(t *testing.T, a Adapter) {
	locks := a.locks(t)
	locker := &watchedLocker{Locker: locks, calls: make(chan struct{}, 1), errs: make(chan error, 1)}
	call := a.Serve(t, Service{
		Options: Options{Locker: locker, Acquire: []core.Option{core.WithWait(patience)}}, Handle: succeed,
	})
	holder := hold(t, locks, "order:42")
	answers := make(chan Answer, 1)
	go func() { answers <- call(t.Context(), "pay", "42") }()
	wait(t, locker.calls)
	release(t, holder)
	if answer := <-answers; !answer.handled() {
		t.Errorf("%+v", answer)
	}
}

func noLease(t *testing.T, a Adapter) {
	nothing := core.LockerFunc(func(context.Context, string, ...core.Option) (*core.Lease, error) { return nil, nil })
	call := a.Serve(t, Service{
		Options: Options{Locker: nothing, Cooldown: time.Second, RefuseDegraded: true},
		Handle: func(ctx context.Context, _ string) error {
			if ctx.Done() == nil {
				return errors.New("not the context of the call")
			}
			return nil
		},
	})
	if answer := call(t.Context(), "pay", "42"); !answer.handled() {
		t.Errorf("%+v", answer)
	}
}

func defaultLocker(t *testing.T, a Adapter) {
	before := core.Default()
	defer core.SetDefault(before)
	call := a.Serve(t, Service{Handle: succeed})
	core.SetDefault(nil)
	if answer := call(t.Context(), "pay", "42"); answer.Row != admit.Misuse {
		t.Errorf("without a locker: %+v, want misuse", answer)
	}
	core.SetDefault(a.locks(t))
	if answer := call(t.Context(), "pay", "42"); !answer.handled() {
		t.Errorf("with the default one: %+v", answer)
	}
}
