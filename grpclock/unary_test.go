package grpclock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/core/locktest"
	"github.com/latchkit/latchkit/grpclock"
)

var byOrder = grpclock.Field("order.id")

// busyHandler runs until release is closed, and tells of each start.
func busyHandler() (h handlers, started chan struct{}, release chan struct{}) {
	started, release = make(chan struct{}, 100), make(chan struct{})
	h.unary = func(context.Context, *dynamicpb.Message) error {
		started <- struct{}{}
		<-release
		return nil
	}
	return h, started, release
}

// background makes a call and returns a channel with its error.
func background(call func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	return done
}

// free fails unless key is free within 5 s.
func free(t testing.TB, locks *core.Locks, key string) {
	t.Helper()
	eventually(t, key+" is free", func() bool {
		info, err := locks.Inspect(context.Background(), key)
		return err == nil && !info.Held
	})
}

// R6, R7: never one shared lock.
func TestCallsWithoutKeyAreRefused(t *testing.T) {
	ran := false
	s := open(t, handlers{unary: func(context.Context, *dynamicpb.Message) error { ran = true; return nil }},
		grpclock.Join(byOrder, grpclock.Metadata("tenant")), grpclock.WithLocker(locktest.New(t)))
	for text, call := range map[string]func() error{
		`field "order.id" is missing or empty`:  func() error { return s.call(with("tenant", "1"), methodPay, `{}`) },
		`metadata "tenant" is missing or empty`: func() error { return s.call(context.Background(), methodPay, order("1")) },
		`metadata "tenant" is given more than once`: func() error {
			return s.call(with("tenant", "1", "tenant", "1"), methodPay, order("1"))
		},
	} {
		err := call()
		wantStatus(t, err, codes.InvalidArgument, grpclock.ReasonInvalidKey)
		if status.Convert(err).Message() != text {
			t.Errorf("message is %q, want %q", status.Convert(err).Message(), text)
		}
	}
	if ran {
		t.Fatal("the handler ran")
	}
}

// logged returns what is logged with slog from now on.
func logged(t *testing.T) *lockedBuffer {
	var log lockedBuffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return &log
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// The table of statuses, and R8, R15, R20.
func TestStatusOfEachVerdict(t *testing.T) {
	failing := func(err error) core.LockerFunc {
		return func(context.Context, string, ...core.Option) (*core.Lease, error) { return nil, err }
	}
	for name, c := range map[string]struct {
		locker core.Locker
		key    grpclock.KeyFunc
		code   codes.Code
		reason string
		delay  time.Duration // -1: no RetryInfo
		push   string
		logged bool
	}{
		"busy": {locker: failing(&core.NotAcquiredError{Key: "k", RetryAfter: 20 * time.Second}),
			code: codes.Aborted, reason: grpclock.ReasonBusy, delay: 700 * time.Millisecond, push: "700"},
		"busy, nearly over": {locker: failing(&core.NotAcquiredError{Key: "k", RetryAfter: 1500 * time.Microsecond}),
			code: codes.Aborted, reason: grpclock.ReasonBusy, delay: 1500 * time.Microsecond, push: "2"},
		"busy, unknown": {locker: failing(&core.NotAcquiredError{Key: "k"}),
			code: codes.Aborted, reason: grpclock.ReasonBusy, delay: 700 * time.Millisecond, push: "700"},
		"completed": {locker: failing(&core.NotAcquiredError{Key: "k", Completed: true, RetryAfter: 4321 * time.Millisecond}),
			code: codes.AlreadyExists, reason: grpclock.ReasonCompleted, delay: 4321 * time.Millisecond},
		"redis down": {locker: failing(fmt.Errorf("%w: dial tcp: secret-host", core.ErrUnavailable)),
			code: codes.Unavailable, reason: grpclock.ReasonUnavailable, delay: 700 * time.Millisecond},
		"closed": {locker: failing(core.ErrClosed),
			code: codes.Unavailable, reason: grpclock.ReasonUnavailable, delay: 700 * time.Millisecond},
		"too many waiters": {locker: failing(core.ErrTooManyWaiters),
			code: codes.Unavailable, reason: grpclock.ReasonUnavailable, delay: 700 * time.Millisecond},
		"conflict":       {locker: failing(core.ErrConflict), code: codes.Internal, reason: grpclock.ReasonMisuse, delay: -1, logged: true},
		"invalid option": {locker: failing(core.ErrInvalidOption), code: codes.Internal, reason: grpclock.ReasonMisuse, delay: -1, logged: true},
		"denied":         {locker: failing(core.ErrDenied), code: codes.Internal, reason: grpclock.ReasonMisuse, delay: -1, logged: true},
		"field lacking": {key: grpclock.Field("order.number.x"), locker: failing(nil),
			code: codes.Internal, reason: grpclock.ReasonMisuse, delay: -1, logged: true},
		"key of mine fails": {key: func(context.Context, any) (string, error) { return "", errors.New("secret-host") }, locker: failing(nil),
			code: codes.InvalidArgument, reason: grpclock.ReasonInvalidKey, delay: -1},
		"key of mine is empty": {key: func(context.Context, any) (string, error) { return "", nil }, locker: failing(nil),
			code: codes.InvalidArgument, reason: grpclock.ReasonInvalidKey, delay: -1},
		"no locker": {code: codes.Internal, reason: grpclock.ReasonMisuse, delay: -1, logged: true},
	} {
		t.Run(name, func(t *testing.T) {
			log := logged(t)
			opts := []grpclock.Option{grpclock.WithRetryAfter(700 * time.Millisecond)}
			if c.locker != nil {
				opts = append(opts, grpclock.WithLocker(c.locker))
			}
			if c.key == nil {
				c.key = byOrder
			}
			ran := false
			s := open(t, handlers{unary: func(context.Context, *dynamicpb.Message) error { ran = true; return nil }}, c.key, opts...)
			var header, trailer metadata.MD
			err := s.call(context.Background(), methodPay, order("42"), grpc.Header(&header), grpc.Trailer(&trailer))
			wantStatus(t, err, c.code, c.reason)
			if retryInfo(err) != c.delay {
				t.Errorf("RetryInfo is %v, want %v", retryInfo(err), c.delay)
			}
			if got := strings.Join(trailer.Get("grpc-retry-pushback-ms"), ","); got != c.push {
				t.Errorf("pushback is %q, want %q", got, c.push)
			}
			if strings.Contains(fmt.Sprint(status.Convert(err).Proto(), header, trailer), "secret-host") {
				t.Errorf("the status shows what failed: %v", err)
			}
			if ran {
				t.Error("the handler ran")
			}
			if (log.String() != "") != c.logged {
				t.Errorf("log is %q", log.String())
			}
		})
	}
}

// Those further out on the server find the reason; what they say about it shows the client nothing more.
func TestRefusalIsAnErrorOfCore(t *testing.T) {
	var seen error
	further := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		_, seen = h(ctx, req)
		return nil, fmt.Errorf("outer: %w", seen)
	}
	locker := core.LockerFunc(func(context.Context, string, ...core.Option) (*core.Lease, error) {
		return nil, &core.NotAcquiredError{Key: "secret-key"}
	})
	s := openWith(t, handlers{}, []grpc.ServerOption{grpc.ChainUnaryInterceptor(further,
		grpclock.UnaryServerInterceptor(byOrder, grpclock.WithLocker(locker)))})
	err := s.call(context.Background(), methodPay, order("42"))
	wantStatus(t, err, codes.Aborted, grpclock.ReasonBusy)
	if strings.Contains(err.Error(), "secret-key") {
		t.Errorf("the client sees the key: %v", err)
	}
	var held *core.NotAcquiredError
	if !errors.Is(seen, core.ErrNotAcquired) || !errors.As(seen, &held) || held.Key != "secret-key" {
		t.Errorf("%v is no NotAcquiredError", seen)
	}
}

// R9: what the handler makes of its request does not change what is released.
func TestHandlerChangesItsRequest(t *testing.T) {
	locks := locktest.New(t)
	s := open(t, handlers{unary: func(_ context.Context, req *dynamicpb.Message) error {
		req.Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool { req.Clear(fd); return true })
		return nil
	}}, byOrder, grpclock.WithLocker(locks))
	for range 2 {
		if err := s.call(context.Background(), methodPay, order("42")); err != nil {
			t.Fatal(err)
		}
	}
	free(t, locks, "order.id:42")
}

func TestSuccessIsWhatTheUserSays(t *testing.T) {
	declined := status.Error(codes.FailedPrecondition, "declined")
	s := open(t, handlers{unary: func(_ context.Context, req *dynamicpb.Message) error { return declined }},
		byOrder, grpclock.WithLocker(locktest.New(t)), grpclock.WithCooldown(time.Hour),
		grpclock.WithSuccess(func(ctx context.Context, resp any, err error) bool {
			method, _ := grpc.Method(ctx)
			return method == methodPay && status.Code(err) == codes.FailedPrecondition
		}))
	wantStatus(t, s.call(context.Background(), methodCancel, order("42")), codes.FailedPrecondition, "")
	wantStatus(t, s.call(context.Background(), methodPay, order("42")), codes.FailedPrecondition, "")
	wantStatus(t, s.call(context.Background(), methodPay, order("42")), codes.AlreadyExists, grpclock.ReasonCompleted)
}

// R22: nothing that a client sends makes it the holder.
func TestForgedOwnerIsIgnored(t *testing.T) {
	h, started, release := busyHandler()
	locks := locktest.New(t)
	s := open(t, h, byOrder, grpclock.WithLocker(locks))
	done := background(func() error { return s.call(context.Background(), methodPay, order("42")) })
	wait(t, started, "the start")
	ctx := with("latchkit-owner", strings.Repeat("0", 32), "latchkit-fence", "9", "x-latchkit-owner", "1")
	wantStatus(t, s.call(ctx, methodPay, order("42")), codes.Aborted, grpclock.ReasonBusy)
	close(release)
	if err := wait(t, done, "the answer"); err != nil {
		t.Fatal(err)
	}
}

// R24: a deadline of the server's own.
func TestDeadlineWhileWaiting(t *testing.T) {
	locks := locktest.New(t)
	lease, err := locks.Acquire(context.Background(), "order.id:42")
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release(context.Background())
	var seen error
	within := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (resp any, err error) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		resp, seen = h(ctx, req)
		return resp, seen
	}
	s := openWith(t, handlers{}, []grpc.ServerOption{grpc.ChainUnaryInterceptor(within,
		grpclock.UnaryServerInterceptor(byOrder, grpclock.WithLocker(locks), grpclock.WithAcquire(core.WithWait(core.Forever))))})
	wantStatus(t, s.call(context.Background(), methodPay, order("42")), codes.DeadlineExceeded, grpclock.ReasonWaitEnded)
	if !errors.Is(seen, core.ErrNotAcquired) || !errors.Is(seen, context.DeadlineExceeded) {
		t.Fatalf("%v does not say both", seen)
	}
}

// R26
func TestKeysOfOneNameAreOneLock(t *testing.T) {
	locks := locktest.New(t)
	h, started, release := busyHandler()
	byMethod := grpclock.PerMethod(map[string]grpclock.KeyFunc{
		methodPay:    grpclock.Named("order", byOrder),
		methodCancel: grpclock.Named("order", grpclock.Field("card")),
	})
	s := open(t, h, byMethod, grpclock.WithLocker(locks))
	done := background(func() error { return s.call(context.Background(), methodPay, order("42")) })
	wait(t, started, "the start")
	wantStatus(t, s.call(context.Background(), methodCancel, `{"card":"42"}`), codes.Aborted, grpclock.ReasonBusy)
	close(release)
	if err := wait(t, done, "the answer"); err != nil {
		t.Fatal(err)
	}
}

func TestMethodsThatAreNotNamedPass(t *testing.T) {
	none := core.LockerFunc(func(context.Context, string, ...core.Option) (*core.Lease, error) {
		return nil, core.ErrClosed
	})
	for name, s := range map[string]*shop{
		"WithMethods": open(t, handlers{}, byOrder, grpclock.WithLocker(none), grpclock.WithMethods(methodPay)),
		"PerMethod": open(t, handlers{}, grpclock.Named("o", grpclock.PerMethod(map[string]grpclock.KeyFunc{methodPay: byOrder})),
			grpclock.WithLocker(none)),
	} {
		t.Run(name, func(t *testing.T) {
			wantStatus(t, s.call(context.Background(), methodPay, order("1")), codes.Unavailable, "")
			if err := s.call(context.Background(), methodCancel, `{}`); err != nil {
				t.Fatal(err)
			}
			if err := ended(s.follow(context.Background())); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// R29: a lease that ends under the handler.
func TestLeaseLostInTheHandler(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(ctx context.Context) error
		code   codes.Code
		reason string
	}{
		"its context's error": {func(ctx context.Context) error { return ctx.Err() }, codes.Aborted, grpclock.ReasonLeaseLost},
		"the cause":           {context.Cause, codes.Aborted, grpclock.ReasonLeaseLost},
		"a status of it": {func(ctx context.Context) error { return status.FromContextError(ctx.Err()).Err() },
			codes.Aborted, grpclock.ReasonLeaseLost},
		"another error": {func(context.Context) error { return status.Error(codes.NotFound, "") }, codes.NotFound, ""},
		"done":          {func(context.Context) error { return nil }, codes.OK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			locks := locktest.New(t)
			s := open(t, handlers{unary: func(ctx context.Context, _ *dynamicpb.Message) error {
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), core.ErrLost) {
					t.Errorf("the cause is %v", context.Cause(ctx))
				}
				return c.answer(ctx)
			}}, byOrder, grpclock.WithLocker(locks), grpclock.WithCooldown(time.Hour),
				grpclock.WithAcquire(core.WithTTL(20*time.Millisecond), core.WithoutRenewal()))
			err := s.call(context.Background(), methodPay, order("42"))
			if c.code != codes.OK || err != nil {
				wantStatus(t, err, c.code, c.reason)
			}
			free(t, locks, "order.id:42") // nothing cools down
		})
	}
}

// The handler finds its lease; the call's own values stay.
func TestHandlerRunsUnderTheLease(t *testing.T) {
	s := open(t, handlers{unary: func(ctx context.Context, _ *dynamicpb.Message) error {
		lease, ok := core.FromContext(ctx)
		if !ok || lease.Key() != "order.id:42" || lease.Fence() == 0 {
			t.Errorf("lease is %v", lease)
		}
		if method, _ := grpc.Method(ctx); method != methodPay {
			t.Errorf("method is %q", method)
		}
		return nil
	}}, byOrder, grpclock.WithLocker(locktest.New(t)))
	if err := s.call(context.Background(), methodPay, order("42")); err != nil {
		t.Fatal(err)
	}
}
