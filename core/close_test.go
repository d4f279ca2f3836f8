package core_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// Close in each state that a tenure can be in.
func TestCloseInEveryState(t *testing.T) {
	dead, cancel := context.WithCancel(context.Background())
	cancel()
	type scene struct {
		*testing.T
		b     whole
		locks *core.Locks
	}
	for name, c := range map[string]struct {
		prepare func(s *scene)
		ctx     context.Context
		want    error
	}{
		"nothing held": {func(*scene) {}, dead, nil},
		"held": {func(s *scene) {
			lease := acquire(s, s.locks, "k")
			go func() {
				<-lease.Context().Done()
				wantErr(s, context.Cause(lease.Context()), core.ErrClosed)
				wantErr(s, lease.Extend(s.Context(), time.Minute), nil...)
				time.Sleep(time.Second)
				release(s, lease)
			}()
		}, context.Background(), nil},
		"held for ever": {func(s *scene) {
			lease := acquire(s, s.locks, "k")
			s.Cleanup(func() {
				err := lease.Release(context.Background())
				wantErr(s, err, core.ErrLost, core.ErrClosed)
			})
		}, dead, context.Canceled},
		"held past its TTL": {func(s *scene) {
			acquire(s, s.locks, "k", core.WithTTL(time.Second), core.WithoutRenewal())
		}, context.Background(), nil},
		"waiting behind a holder": {func(s *scene) {
			lease := acquire(s, s.locks, "k")
			for range 3 {
				go func() {
					_, err := s.locks.Acquire(s.Context(), "k", core.WithWait(core.Forever))
					wantErr(s, err, core.ErrClosed)
				}()
			}
			time.AfterFunc(time.Second, func() { release(s, lease) })
		}, context.Background(), nil},
		"waiting for a holder elsewhere": {func(s *scene) {
			acquire(s, newLocks(s, s.b), "k")
			for range 3 {
				go func() {
					_, err := s.locks.Acquire(s.Context(), "k", core.WithWait(core.Forever))
					wantErr(s, err, core.ErrClosed)
				}()
			}
		}, dead, nil},
		"granted just now": {func(s *scene) {
			s.b.set(func(_ context.Context, op *core.Op) bool { time.Sleep(50 * time.Millisecond); return false }, nil)
			go func() {
				_, err := s.locks.Acquire(s.Context(), "k")
				wantErr(s, err, core.ErrClosed)
			}()
		}, dead, nil},
		"parked": {func(s *scene) {
			lease := acquire(s, s.locks, "k") // has one fence, so the hand-off waits for more
			go func() {
				_, err := s.locks.Acquire(s.Context(), "k", core.WithWait(core.Forever))
				wantErr(s, err, core.ErrClosed)
			}()
			synctest.Wait()
			s.b.set(func(_ context.Context, op *core.Op) bool {
				if op.Action == core.Refill {
					time.Sleep(100 * time.Millisecond)
				}
				return false
			}, nil)
			release(s, lease)
		}, context.Background(), nil},
		"parked for ever": {func(s *scene) {
			lease := acquire(s, s.locks, "k")
			go func() {
				_, err := s.locks.Acquire(s.Context(), "k", core.WithWait(core.Forever))
				wantErr(s, err, core.ErrClosed)
			}()
			synctest.Wait()
			s.b.set(func(ctx context.Context, op *core.Op) bool {
				if op.Action == core.Refill {
					hang(ctx, op)
				}
				return op.Err != nil
			}, nil)
			release(s, lease)
		}, dead, context.Canceled},
		"releasing": {func(s *scene) {
			lease := acquire(s, s.locks, "k")
			s.b.set(func(_ context.Context, op *core.Op) bool { time.Sleep(100 * time.Millisecond); return false }, nil)
			go lease.Release(s.Context())
		}, context.Background(), nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := whole{newScripted()}
				locks, err := core.New(b)
				if err != nil {
					t.Fatal(err)
				}
				c.prepare(&scene{t, b, locks})
				synctest.Wait()
				began := time.Now()
				if err := locks.Close(c.ctx); !errors.Is(err, c.want) {
					t.Errorf("Close says %v, want %v", err, c.want)
				}
				if took := time.Since(began); took > 2200*time.Millisecond {
					t.Errorf("Close took %v", took)
				}
				time.Sleep(3 * time.Second) // what was on its way out
				if name != "waiting for a holder elsewhere" && b.held(t, "k") {
					t.Error("the key is held still")
				}
				_, err = locks.Acquire(t.Context(), "k")
				wantErr(t, err, core.ErrClosed)
				if err := locks.Close(c.ctx); c.want == nil && err != nil {
					t.Errorf("Close again: %v", err)
				}
				if n := locks.Gates(); n != 0 {
					t.Errorf("%d keys are kept track of", n)
				}
			})
		})
	}
}

// Re-entry begins nothing new while the engine is closing.
func TestNoReentryWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := newLocks(t, core.Local())
		lease := acquire(t, locks, "k")
		closed := make(chan error)
		go func() { closed <- locks.Close(context.Background()) }()
		synctest.Wait()
		_, err := locks.Acquire(context.WithoutCancel(lease.Context()), "k")
		wantErr(t, err, core.ErrClosed)
		release(t, lease)
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

// However much is owed to a store that hangs, Close takes 2 s more than its context at most.
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		locks := newLocks(t, b, core.WithTTL(time.Hour))
		for i := range 300 {
			acquire(t, locks, fmt.Sprint("held", i))
		}
		b.set(func(_ context.Context, op *core.Op) bool { down(op); return true }, nil)
		for i := range 600 {
			_, err := locks.Acquire(t.Context(), fmt.Sprint("k", i))
			wantErr(t, err, core.ErrUnavailable)
		}
		b.set(func(ctx context.Context, op *core.Op) bool { hang(ctx, op); return true }, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		wantErr(t, locks.Close(ctx), context.DeadlineExceeded)
		if took := time.Since(began); took > 3300*time.Millisecond {
			t.Errorf("Close took %v", took)
		}
	})
}

// A lease is either refused by Close or ended by it, whatever moment it is granted in.
func TestCloseBesideGrants(t *testing.T) {
	dead, cancel := context.WithCancel(context.Background())
	cancel()
	for range 300 {
		locks, err := core.New(core.Local())
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				lease, err := locks.Acquire(t.Context(), fmt.Sprint("k", i))
				if err != nil {
					wantErr(t, err, core.ErrClosed)
					return
				}
				select {
				case <-lease.Context().Done():
				case <-time.After(5 * time.Second):
					t.Error("a lease of a closed engine goes on")
				}
			})
		}
		locks.Close(dead)
		wg.Wait()
	}
}

// Engines on one Backend share its subscriptions: one that closes takes nothing from the others.
func TestCloseLeavesOtherEnginesTheirSubscriptions(t *testing.T) {
	server := redistest.Start(t)
	holder := newLocks(t, core.Redis(server.Client()))
	shared := core.Redis(server.Client())
	closing, waiting := newLocks(t, shared), newLocks(t, shared)
	lease := acquire(t, holder, "k", core.WithTTL(time.Minute))
	got := make(chan *core.Lease)
	go func() { got <- acquire(t, waiting, "k", core.WithWait(time.Minute)) }()
	rdb := server.Client()
	subscribed := func() bool {
		return rdb.PubSubNumSub(t.Context(), "latchkit~wait:{k}").Val()["latchkit~wait:{k}"] == 1
	}
	eventually(t, 5*time.Second, "the subscription", subscribed)
	if err := closing.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "the subscription again", subscribed)
	eventually(t, 5*time.Second, "a waiter", func() bool {
		info, err := holder.Inspect(t.Context(), "k")
		return err == nil && info.Waiters == 1
	})
	began := time.Now()
	release(t, lease)
	release(t, <-got)
	if took := time.Since(began); took > 900*time.Millisecond {
		t.Errorf("woken after %v only", took)
	}
}
