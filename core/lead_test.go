package core_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

func TestLeadEndsWithTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := core.Local()
		one, two := newLocks(t, b), newLocks(t, b)
		var running, runs atomic.Int64
		work := func(ctx context.Context) error {
			if running.Add(1) != 1 {
				t.Error("two lead at once")
			}
			defer running.Add(-1)
			runs.Add(1)
			if lease, ok := core.FromContext(ctx); !ok || lease.Key() != "job" {
				t.Error("no lease in the context")
			}
			time.Sleep(time.Minute)
			return ctx.Err()
		}
		done := make(chan error, 2)
		for _, l := range []*core.Locks{one, two} {
			go func() { done <- core.Lead(t.Context(), l, "job", work) }()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if runs.Load() != 2 {
			t.Errorf("%d runs, want one each", runs.Load())
		}
	})
}

func TestLeadStandsByAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := core.Local()
		one, two := newLocks(t, b), newLocks(t, b)
		broken := errors.New("the job is broken")
		var runs []time.Duration
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		began := time.Now()
		err := core.Lead(ctx, one, "job", func(context.Context) error {
			runs = append(runs, time.Since(began))
			if len(runs) == 2 { // meanwhile the key is free for others
				time.AfterFunc(time.Millisecond, func() { release(t, acquire(t, two, "job")) })
			}
			return broken
		})
		wantErr(t, err, context.DeadlineExceeded, broken)
		// Pauses of 0.5 to 1 s at first, of 30 to 60 s at last.
		if len(runs) < 10 || len(runs) > 26 {
			t.Errorf("%d runs in 10 min of failing: %v", len(runs), runs)
		}
		if pause := runs[1] - runs[0]; pause < 500*time.Millisecond || pause > time.Second {
			t.Errorf("the first pause is %v", pause)
		}
	})
}

func TestLeadAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := core.Local()
		locks, operator := newLocks(t, b, core.WithTTL(time.Second)), newLocks(t, b)
		runs := 0
		err := core.Lead(t.Context(), locks, "job", func(ctx context.Context) error {
			if runs++; runs == 1 {
				if err := operator.ForceRelease(ctx, "job"); err != nil {
					t.Error(err)
				}
				<-ctx.Done()
				wantErr(t, context.Cause(ctx), core.ErrLost)
			}
			return nil // which does not count the first time
		})
		if err != nil || runs != 2 {
			t.Errorf("%d runs, %v", runs, err)
		}
	})
}

func TestLeadGivesUpWhereWaitingWouldNotHelp(t *testing.T) {
	locks := newLocks(t, core.Local())
	never := func(context.Context) error { t.Error("fn ran"); return nil }
	wantErr(t, core.Lead(t.Context(), locks, "", never), core.ErrInvalidKey)
	wantErr(t, core.Lead(t.Context(), locks, "k", never, core.WithTTL(-1)), core.ErrInvalidOption)
	denied := core.LockerFunc(func(context.Context, string, ...core.Option) (*core.Lease, error) { return nil, core.ErrDenied })
	wantErr(t, core.Lead(t.Context(), denied, "k", never), core.ErrDenied)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantErr(t, core.Lead(ctx, locks, "k", never), context.Canceled)
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("the panic did not pass")
			}
		}()
		_ = core.Lead(t.Context(), locks, "k", func(context.Context) error { panic("boom") })
	}()
	release(t, acquire(t, locks, "k"))
}

func TestLeadSurvivesHoursWithoutTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		locks := newLocks(t, s, core.WithTTL(10*time.Second))
		away := time.Now().Add(5 * time.Hour)
		var tries atomic.Int64
		s.set(func(_ context.Context, op *core.Op) bool {
			if time.Now().Before(away) {
				if op.Action == core.Try {
					tries.Add(1)
				}
				down(op)
				return true
			}
			return false
		}, nil)
		err := core.Lead(t.Context(), locks, "job", func(context.Context) error {
			if late := time.Since(away); late < 0 || late > 11*time.Second {
				t.Errorf("led %v after the backend was back", late)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		// Each try is three attempts; pauses are 5 to 10 s.
		if tries := tries.Load(); tries > 3*5*3600/5+100 {
			t.Errorf("%d attempts in 5 h", tries)
		}
	})
}

// L32: Redis hangs, or is gone, for longer than the TTL.
func TestL32LeaderEndsByItsDeadlineAndOneLeadsAgain(t *testing.T) {
	for name, c := range map[string]struct{ away, back func(*redistest.Server) }{
		"hangs": {(*redistest.Server).Pause, (*redistest.Server).Resume},
		"gone":  {(*redistest.Server).Kill, (*redistest.Server).Restart},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			leadsAgain(t, redistest.Start(t), c.away, c.back)
		})
	}
}

func leadsAgain(t *testing.T, server *redistest.Server, away, back func(*redistest.Server)) {
	const ttl = time.Second
	var leading atomic.Int64
	led := make(chan string, 64)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	for _, name := range []string{"one", "two"} {
		locks := newLocks(t, core.Redis(server.Client()), core.WithTTL(ttl))
		go func() {
			done <- core.Lead(ctx, locks, "job", func(ctx context.Context) error {
				if leading.Add(1) != 1 {
					t.Error("two lead at once")
				}
				defer leading.Add(-1)
				led <- name
				lease, _ := core.FromContext(ctx)
				<-ctx.Done()
				if over := time.Since(lease.Deadline()); ctx.Err() != nil && over > 500*time.Millisecond {
					t.Errorf("its context ended %v after its deadline", over)
				}
				return ctx.Err()
			})
		}()
	}
	<-led
	away(server)
	eventually(t, ttl+2*time.Second, "the leader stands down", func() bool { return leading.Load() == 0 })
	time.Sleep(2 * ttl)
	back(server)
	select {
	case <-led:
	case <-time.After(ttl + 10*time.Second):
		t.Fatal("nobody leads after the return of Redis")
	}
	cancel()
	for range 2 {
		wantErr(t, <-done, context.Canceled)
	}
}

// L31: the leader's process is killed.
func TestL31StandbyTakesOverFromAKilledProcess(t *testing.T) {
	server := redistest.Start(t)
	const ttl = time.Second
	rdb := server.Client()
	locks := newLocks(t, core.Redis(rdb), core.WithTTL(ttl))
	leader := exec.Command(os.Args[0], "-test.run=^TestChildLeads$", "-test.v")
	leader.Env = append(os.Environ(), "LATCHKIT_LEADS="+server.Addr()+" "+ttl.String())
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	defer func() {
		if !killed {
			_ = leader.Process.Kill()
			_ = leader.Wait()
		}
	}()
	eventually(t, 20*time.Second, "the process leads", func() bool {
		info, err := locks.Inspect(t.Context(), "job")
		return err == nil && info.Held
	})
	led := make(chan time.Time, 1)
	done := make(chan error, 1)
	go func() {
		done <- core.Lead(t.Context(), locks, "job", func(context.Context) error {
			led <- time.Now()
			return nil
		})
	}()
	select {
	case <-led:
		t.Fatal("led beside a living leader")
	case <-time.After(2 * ttl):
	}
	asked := time.Now()
	info, err := locks.Inspect(t.Context(), "job")
	if err != nil || !info.Held {
		t.Fatalf("inspect of a job that is led: %+v, %v", info, err)
	}
	if err := leader.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	killed = true
	_ = leader.Wait()
	over := <-led
	if took := over.Sub(at); took > ttl+3*time.Second {
		t.Errorf("the standby took over after %v", took)
	}
	if early := asked.Add(info.Holders[0].Remaining).Sub(over); early > 5*time.Millisecond {
		t.Errorf("the standby took over %v before the other's lease was over", early)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestChildLeads is the process that is killed; by itself it has nothing to do.
func TestChildLeads(t *testing.T) {
	args := strings.Fields(os.Getenv("LATCHKIT_LEADS"))
	if len(args) != 2 {
		return
	}
	ttl, err := time.ParseDuration(args[1])
	if err != nil {
		t.Fatal(err)
	}
	locks := newLocks(t, core.Redis(redis.NewClient(&redis.Options{Addr: args[0]})), core.WithTTL(ttl))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // should its parent die
	defer cancel()
	fmt.Println(core.Lead(ctx, locks, "job", func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}))
}
