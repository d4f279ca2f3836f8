package grpclock_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/core/locktest"
	"github.com/latchkit/latchkit/grpclock"
)

// held acquires key for the test's time.
func held(t testing.TB, locks *core.Locks, key string) {
	t.Helper()
	lease, err := locks.Acquire(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
}

func TestStreamLocksAtTheFirstMessage(t *testing.T) {
	locks := locktest.New(t)
	received, release := make(chan error, 1), make(chan struct{})
	s := open(t, handlers{stream: func(ss grpc.ServerStream) error {
		if _, ok := core.FromContext(ss.Context()); ok {
			t.Error("locked before the first message")
		}
		for range 2 {
			if err := receive(ss); err != nil {
				return err
			}
			lease, ok := core.FromContext(ss.Context())
			if !ok || lease.Key() != "order.id:42" {
				t.Errorf("lease is %v", lease)
			}
		}
		received <- nil
		<-release
		return ss.SendMsg(&emptypb.Empty{})
	}}, byOrder, grpclock.WithLocker(locks))

	// The second message names another order; the lock is the first one's.
	first := s.follow(context.Background(), order("42"), order("43"))
	wait(t, received, "both messages")
	err := ended(s.follow(context.Background(), order("42")))
	wantStatus(t, err, codes.Aborted, grpclock.ReasonBusy)
	if retryInfo(err) != time.Second {
		t.Errorf("RetryInfo is %v", retryInfo(err))
	}
	close(release)
	if err := ended(first); err != nil {
		t.Fatal(err)
	}
	free(t, locks, "order.id:42")
}

func TestStreamLocksOnMetadataAtOnce(t *testing.T) {
	tenant := grpclock.Metadata("tenant")
	for name, key := range map[string]grpclock.KeyFunc{
		"Metadata":  tenant,
		"Named":     grpclock.Named("t", tenant),
		"Join":      grpclock.Join(tenant, grpclock.Named("again", tenant)),
		"PerMethod": grpclock.PerMethod(map[string]grpclock.KeyFunc{methodFollow: tenant, methodPay: byOrder}),
	} {
		t.Run(name, func(t *testing.T) {
			locks := locktest.New(t)
			started, release := make(chan struct{}, 9), make(chan struct{})
			s := open(t, handlers{stream: func(ss grpc.ServerStream) error {
				if _, ok := core.FromContext(ss.Context()); !ok {
					t.Error("the handler runs unlocked")
				}
				started <- struct{}{}
				<-release
				return receive(ss)
			}}, key, grpclock.WithLocker(locks))
			first := s.follow(with("tenant", "7"))
			wait(t, started, "the start")
			wantStatus(t, ended(s.follow(with("tenant", "7"))), codes.Aborted, grpclock.ReasonBusy)
			wantStatus(t, ended(s.follow(context.Background())), codes.InvalidArgument, grpclock.ReasonInvalidKey)
			close(release)
			if err := first.SendMsg(payRequest(t, shopProto, `{}`)); err != nil {
				t.Fatal(err)
			}
			if err := ended(first); err != nil || len(started) != 0 {
				t.Fatal(err, len(started))
			}
		})
	}
}

// A key function of the user's is never called without a message.
func TestStreamCallsOwnKeyFuncWithAMessage(t *testing.T) {
	mine := func(_ context.Context, req any) (string, error) {
		_ = req.(*dynamicpb.Message) // panics without one
		return "mine", nil
	}
	locks := locktest.New(t)
	held(t, locks, "mine")
	s := open(t, handlers{stream: receive}, mine, grpclock.WithLocker(locks))
	wantStatus(t, ended(s.follow(context.Background(), `{}`)), codes.Aborted, grpclock.ReasonBusy)
}

func TestRefusalStandsWhateverTheHandlerDoes(t *testing.T) {
	for name, handler := range map[string]func(ss grpc.ServerStream) error{
		"swallows it": func(ss grpc.ServerStream) error { _ = receive(ss); return nil },
		"fails in its own way": func(ss grpc.ServerStream) error {
			_ = receive(ss)
			return errors.New("mine")
		},
		"receives again": func(ss grpc.ServerStream) error {
			_ = receive(ss)
			if err := receive(ss); !errors.Is(err, core.ErrNotAcquired) {
				t.Errorf("the next message comes with %v", err)
			}
			return nil
		},
		"answers": func(ss grpc.ServerStream) error {
			_ = receive(ss)
			if err := ss.SendHeader(metadata.Pairs("a", "b")); !errors.Is(err, core.ErrNotAcquired) {
				t.Errorf("the header was sent: %v", err)
			}
			if err := ss.SendMsg(&emptypb.Empty{}); !errors.Is(err, core.ErrNotAcquired) {
				t.Errorf("a message was sent: %v", err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			locks := locktest.New(t)
			held(t, locks, "order.id:42")
			s := open(t, handlers{stream: handler}, byOrder, grpclock.WithLocker(locks))
			cs := s.follow(context.Background(), order("42"))
			if err := cs.RecvMsg(&emptypb.Empty{}); err == nil {
				t.Fatal("the client got an answer")
			} else {
				wantStatus(t, err, codes.Aborted, grpclock.ReasonBusy)
			}
			if push := cs.Trailer().Get("grpc-retry-pushback-ms"); len(push) != 1 || push[0] != "1000" {
				t.Errorf("pushback is %v", push)
			}
		})
	}
}

func TestStreamWithoutKey(t *testing.T) {
	got := make(chan error, 1)
	s := open(t, handlers{stream: func(ss grpc.ServerStream) error {
		got <- receive(ss)
		return nil
	}}, byOrder, grpclock.WithLocker(locktest.New(t)))
	wantStatus(t, ended(s.follow(context.Background(), `{}`)), codes.InvalidArgument, grpclock.ReasonInvalidKey)
	<-got

	cs := s.follow(context.Background())
	if err := cs.CloseSend(); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, ended(cs), codes.InvalidArgument, grpclock.ReasonInvalidKey)
	if err := <-got; errors.Is(err, io.EOF) {
		t.Fatal("the handler was told of an empty stream, and could have gone on")
	}
}

// It has nothing to lock by, and the documentation says so.
func TestHandlerThatNeverReceivesRunsUnlocked(t *testing.T) {
	locks := locktest.New(t)
	held(t, locks, "order.id:42")
	s := open(t, handlers{stream: func(ss grpc.ServerStream) error { return ss.SendMsg(&emptypb.Empty{}) }},
		byOrder, grpclock.WithLocker(locks))
	if err := ended(s.follow(context.Background(), order("42"))); err != nil {
		t.Fatal(err)
	}
}

func TestStreamCooldown(t *testing.T) {
	locks := locktest.New(t)
	var answer error
	s := open(t, handlers{stream: func(ss grpc.ServerStream) error { return errors.Join(receive(ss), answer) }},
		byOrder, grpclock.WithLocker(locks), grpclock.WithCooldown(time.Hour))
	answer = errors.New("no")
	for range 2 {
		wantStatus(t, ended(s.follow(context.Background(), order("42"))), codes.Unknown, "")
	}
	answer = nil
	if err := ended(s.follow(context.Background(), order("42"))); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, ended(s.follow(context.Background(), order("42"))), codes.AlreadyExists, grpclock.ReasonCompleted)
	wantStatus(t, s.call(context.Background(), methodPay, order("42")), codes.AlreadyExists, grpclock.ReasonCompleted)
}

// R29: the lease ends under the handler, and so does every context that it took from the stream.
func TestStreamLeaseLost(t *testing.T) {
	locks := locktest.New(t)
	s := open(t, handlers{stream: func(ss grpc.ServerStream) error {
		early := ss.Context()
		if err := receive(ss); err != nil {
			return err
		}
		for _, ctx := range []context.Context{ss.Context(), early} {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), core.ErrLost) {
				t.Errorf("the cause is %v", context.Cause(ctx))
			}
		}
		return early.Err()
	}}, byOrder, grpclock.WithLocker(locks), grpclock.WithCooldown(time.Hour),
		grpclock.WithAcquire(core.WithTTL(20*time.Millisecond), core.WithoutRenewal()))
	wantStatus(t, ended(s.follow(context.Background(), order("42"))), codes.Aborted, grpclock.ReasonLeaseLost)
	free(t, locks, "order.id:42")
}

// waiting is a Locker that counts who waits in it.
type waiting struct {
	core.Locker
	now atomic.Int32
}

func (w *waiting) Acquire(ctx context.Context, key string, opts ...core.Option) (*core.Lease, error) {
	w.now.Add(1)
	defer w.now.Add(-1)
	return w.Locker.Acquire(ctx, key, opts...)
}

// A handler may return while its receiving goroutine still waits for the lock. Nothing is left behind.
func TestHandlerReturnsWhileItsReceiverWaits(t *testing.T) {
	for name, deaf := range map[string]bool{"obedient": false, "granted too late": true} {
		t.Run(name, func(t *testing.T) {
			engine := locktest.New(t)
			locks, granted := &waiting{Locker: engine}, make(chan struct{})
			locks.Locker = core.LockerFunc(func(ctx context.Context, key string, opts ...core.Option) (*core.Lease, error) {
				if deaf { // a lock that is granted just as the handler returns
					<-granted
					ctx = context.WithoutCancel(ctx)
				}
				return engine.Acquire(ctx, key, opts...)
			})
			if !deaf {
				held(t, engine, "order.id:42")
			}
			got := make(chan error, 1)
			s := open(t, handlers{stream: func(ss grpc.ServerStream) error {
				go func() { got <- receive(ss) }()
				eventually(t, "the receiver waits", func() bool { return locks.now.Load() == 1 })
				return nil
			}}, byOrder, grpclock.WithLocker(locks), grpclock.WithAcquire(core.WithWait(core.Forever)))
			if err := ended(s.follow(context.Background(), order("42"))); err != nil {
				t.Fatal(err)
			}
			close(granted)
			if err := wait(t, got, "the receiver's end"); err == nil {
				t.Fatal("the receiver went on without a lock")
			}
			if deaf {
				free(t, engine, "order.id:42")
			}
		})
	}
}
