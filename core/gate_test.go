package core_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkit/latchkit/core"
)

// What came of an exclusive attempt, or of another reader's, says nothing to a reader who came meanwhile.
func TestReadersDoNotShareAVerdictThatIsNotTheirs(t *testing.T) {
	for name, first := range map[string]core.Option{"reader": core.WithShared(), "writer": nil, "permit": core.WithLimit(5)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newScripted()
				elsewhere, locks := newLocks(t, b), newLocks(t, b)
				kind := core.WithShared()
				if name == "permit" {
					kind = first
				}
				acquire(t, elsewhere, "k", kind)
				answer := make(chan struct{})
				var once sync.Once
				b.set(func(_ context.Context, op *core.Op) bool {
					once.Do(func() { <-answer })
					return false
				}, nil)
				go locks.Acquire(t.Context(), "k", first)
				synctest.Wait()
				errs := make(chan error, 3)
				for range cap(errs) {
					go func() {
						_, err := locks.Acquire(t.Context(), "k", kind)
						errs <- err
					}()
				}
				synctest.Wait()
				close(answer)
				for range cap(errs) {
					if err := <-errs; err != nil {
						t.Errorf("there is room beside the holder, but: %v", err)
					}
				}
			})
		})
	}
}

// Behind a first try that hangs nothing is known about the key: a wait that is spent meanwhile does not end as "busy".
func TestWaitBehindAHungTryIsNotBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		locks := newLocks(t, b)
		b.set(func(ctx context.Context, op *core.Op) bool { hang(ctx, op); return true }, nil)
		began := time.Now()
		go locks.Acquire(t.Context(), "k")
		synctest.Wait()
		errs := make(chan error, 2)
		go func() {
			_, err := locks.Acquire(t.Context(), "k", core.WithWait(300*time.Millisecond))
			errs <- err
		}()
		cancelled, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := locks.Acquire(cancelled, "k", core.WithWait(core.Forever))
			errs <- err
		}()
		time.Sleep(500 * time.Millisecond)
		cancel()
		err := <-errs
		wantErr(t, err, context.Canceled)
		if errors.Is(err, core.ErrNotAcquired) || time.Since(began) > 600*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		err = <-errs
		wantErr(t, err, core.ErrUnavailable)
		if errors.Is(err, core.ErrNotAcquired) || time.Since(began) > 2500*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		b.set(nil, nil)
		synctest.Wait()
	})
}

// A wait that is spent behind a try under way, which then is granted or refused, is busy.
func TestWaitBehindATryThatIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		locks := newLocks(t, b)
		b.set(func(_ context.Context, op *core.Op) bool { time.Sleep(200 * time.Millisecond); return false }, nil)
		go locks.Acquire(t.Context(), "k")
		synctest.Wait()
		began := time.Now()
		_, err := locks.Acquire(t.Context(), "k", core.WithWait(50*time.Millisecond))
		wantErr(t, err, core.ErrNotAcquired)
		if took := time.Since(began); took != 200*time.Millisecond {
			t.Errorf("after %v, want the answer's 200ms", took)
		}
	})
}

// replicating is a Backend that never has the replicas that are asked for.
type replicating struct{ *scripted }

func (replicating) Supports(core.Hold) error { return nil }

// Replicas that do not come are a verdict on those only who asked for them.
func TestMissingReplicasDoNotEndOthersWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := replicating{newScripted()}
		locks := newLocks(t, b)
		release := make(chan struct{})
		b.set(func(_ context.Context, op *core.Op) bool {
			if op.Action == core.Try && op.Replicas > 0 {
				<-release
				down(op)
				return true
			}
			return false
		}, nil)
		errs := make(chan error, 3)
		get := func(opts ...core.Option) {
			lease, err := locks.Acquire(t.Context(), "k", opts...)
			if err == nil {
				err = lease.Release(t.Context())
			}
			errs <- err
		}
		go get(core.WithReplicas(1, time.Second))
		synctest.Wait()
		go get(core.WithWait(time.Minute))
		go get()
		synctest.Wait()
		close(release)
		unavailable := 0
		for range cap(errs) {
			switch err := <-errs; {
			case errors.Is(err, core.ErrUnavailable):
				unavailable++
			case err != nil && !errors.Is(err, core.ErrNotAcquired): // the one who may not wait, by the one who may
				t.Error(err)
			}
		}
		if unavailable != 1 {
			t.Errorf("%d were told of the replicas, want the one who asked for them", unavailable)
		}
	})
}

// An empty engine keeps track of nothing.
func TestGatesAreTakenDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := whole{newScripted()}
		one, two := newLocks(t, b), newLocks(t, b)
		lease := acquire(t, one, "k")
		_, err := two.Acquire(t.Context(), "k", core.WithWait(time.Second))
		wantErr(t, err, core.ErrNotAcquired)
		_, err = two.Acquire(t.Context(), "k")
		wantErr(t, err, core.ErrNotAcquired)
		got := make(chan *core.Lease)
		go func() { got <- acquire(t, two, "k", core.WithWait(time.Minute)) }()
		synctest.Wait()
		release(t, lease)
		release(t, <-got)
		lost := acquire(t, one, "k", core.WithTTL(time.Second), core.WithoutRenewal())
		time.Sleep(2 * time.Second)
		wantErr(t, lost.Release(t.Context()), core.ErrLost)
		if n := one.Gates() + two.Gates(); n != 0 {
			t.Errorf("%d keys are kept track of", n)
		}
	})
}

// hooked is a context whose Err is asked of a test first.
type hooked struct {
	context.Context
	err func()
}

func (h hooked) Err() error {
	h.err()
	return h.Context.Err()
}

// A lease that has ended between its hand-off and the moment in which its taker comes to run is not handed out.
func TestHandedLeaseThatHasEndedIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := whole{newScripted()}
		locks := newLocks(t, b)
		first := acquire(t, locks, "k")
		handed := false
		ctx := hooked{t.Context(), func() {
			if handed {
				handed = false
				if err := locks.ForceRelease(t.Context(), "k"); err != nil {
					t.Error(err)
				}
			}
		}}
		got := make(chan *core.Lease)
		go func() {
			lease, err := locks.Acquire(ctx, "k", core.WithWait(time.Minute))
			if err != nil {
				t.Error(err)
			}
			got <- lease
		}()
		synctest.Wait()
		handed = true
		release(t, first)
		lease := <-got
		if err := context.Cause(lease.Context()); err != nil {
			t.Errorf("a lease that has ended: %v", err)
		}
		if b.count(core.Try) != 2 {
			t.Errorf("%d tries, want a second one for the taker", b.count(core.Try))
		}
		release(t, lease)
	})
}

// Attempts that are answered late and find nothing follow one another no longer than the wait, and one trip more.
func TestNoAttemptFollowsASpentWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := whole{newScripted()}
		elsewhere, locks := newLocks(t, b), newLocks(t, b)
		lease := acquire(t, elsewhere, "k", core.WithTTL(time.Minute))
		b.set(func(context.Context, *core.Op) bool { time.Sleep(1500 * time.Millisecond); return false }, nil)
		began := time.Now()
		_, err := locks.Acquire(t.Context(), "k", core.WithWait(time.Second))
		wantErr(t, err, core.ErrNotAcquired)
		if took := time.Since(began); took != 1500*time.Millisecond {
			t.Errorf("after %v, want the first answer's 1.5s", took)
		}
		b.set(nil, nil)
		release(t, lease)
	})
}

// A writer that waits beside a reader of its own process asks the store, to keep new readers out. A store that has
// forgotten the reader would grant it: nothing comes of it until the reader has let go or was told of its loss.
func TestAWriterDoesNotPassTheReadersOfItsProcess(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *core.Lease){
		"released": func(t *testing.T, reader *core.Lease) {
			wantErr(t, reader.Release(t.Context()), core.ErrLost)
		},
		"lost": func(t *testing.T, reader *core.Lease) { <-reader.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := whole{newScripted()}
				locks := newLocks(t, b, core.WithTTL(3*time.Second))
				reader := acquire(t, locks, "k", core.WithShared())
				if err := b.ForceRelease(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
				got := make(chan *core.Lease)
				go func() { got <- acquire(t, locks, "k", core.WithWait(time.Minute)) }()
				synctest.Wait()
				if n := b.count(core.Try); n != 2 {
					t.Errorf("%d tries, want the reader's and one of the writer", n)
				}
				select {
				case <-got:
					t.Fatal("it writes beside a reader who has not heard of its loss")
				default:
				}
				if b.held(t, "k") {
					t.Error("what the writer was granted is not given back")
				}
				end(t, reader)
				writer := <-got
				wantErr(t, reader.Context().Err(), context.Canceled)
				release(t, writer)
			})
		})
	}
}
