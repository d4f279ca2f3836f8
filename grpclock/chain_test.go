package grpclock_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/selector"
	"google.golang.org/grpc"
	channelzpb "google.golang.org/grpc/channelz/grpc_channelz_v1"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/core/locktest"
	"github.com/latchkit/latchkit/grpclock"
)

// R3, R19: in a chain of go-grpc-middleware a panic releases, and reaches the recovery.
func TestPanicReachesTheRecovery(t *testing.T) {
	locks := locktest.New(t)
	opts := []grpclock.Option{grpclock.WithLocker(locks), grpclock.WithCooldown(time.Hour)}
	recovered := recovery.WithRecoveryHandler(func(p any) error { return status.Errorf(codes.DataLoss, "%v", p) })
	s := openWith(t, handlers{
		unary:  func(context.Context, *dynamicpb.Message) error { panic("mine") },
		stream: func(ss grpc.ServerStream) error { panic(receive(ss)) },
	}, []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(recovery.UnaryServerInterceptor(recovered), grpclock.UnaryServerInterceptor(byOrder, opts...)),
		grpc.ChainStreamInterceptor(recovery.StreamServerInterceptor(recovered), grpclock.StreamServerInterceptor(byOrder, opts...)),
	})
	for range 2 {
		err := s.call(context.Background(), methodPay, order("42"))
		wantStatus(t, err, codes.DataLoss, "")
		if status.Convert(err).Message() != "mine" {
			t.Errorf("the recovery saw %v", err)
		}
		wantStatus(t, ended(s.follow(context.Background(), order("42"))), codes.DataLoss, "")
	}
	free(t, locks, "order.id:42")
}

func TestSelectorChoosesWhatIsLocked(t *testing.T) {
	locks := locktest.New(t)
	held(t, locks, "order.id:42")
	onlyPay := selector.MatchFunc(func(_ context.Context, c interceptors.CallMeta) bool { return c.FullMethod() == methodPay })
	s := openWith(t, handlers{stream: receive}, []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(selector.UnaryServerInterceptor(
			grpclock.UnaryServerInterceptor(byOrder, grpclock.WithLocker(locks)), onlyPay)),
		grpc.ChainStreamInterceptor(selector.StreamServerInterceptor(
			grpclock.StreamServerInterceptor(byOrder, grpclock.WithLocker(locks)), onlyPay)),
	})
	wantStatus(t, s.call(context.Background(), methodPay, order("42")), codes.Aborted, grpclock.ReasonBusy)
	if err := s.call(context.Background(), methodCancel, order("42")); err != nil {
		t.Fatal(err)
	}
	if err := ended(s.follow(context.Background(), order("42"))); err != nil {
		t.Fatal(err)
	}
}

// R31: a server-wide interceptor leaves gRPC's own services alone, and says nothing about it.
func TestHealthReflectionAndChannelzPass(t *testing.T) {
	for name, key := range map[string]grpclock.KeyFunc{
		"field":    byOrder,
		"metadata": grpclock.Metadata("idempotency-key"),
		"mine":     func(_ context.Context, req any) (string, error) { return "", nil },
	} {
		t.Run(name, func(t *testing.T) {
			log := logged(t)
			s := open(t, handlers{}, key, grpclock.WithLocker(locktest.New(t)))
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if _, err := healthpb.NewHealthClient(s.conn).Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
				t.Errorf("health: %v", err)
			}
			watch, err := healthpb.NewHealthClient(s.conn).Watch(ctx, &healthpb.HealthCheckRequest{})
			if err == nil {
				_, err = watch.Recv()
			}
			if err != nil {
				t.Errorf("health watch: %v", err)
			}
			info, err := reflectionpb.NewServerReflectionClient(s.conn).ServerReflectionInfo(ctx)
			if err == nil {
				err = info.Send(&reflectionpb.ServerReflectionRequest{
					MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
			}
			if err == nil {
				_, err = info.Recv()
			}
			if err != nil {
				t.Errorf("reflection: %v", err)
			}
			if _, err := channelzpb.NewChannelzClient(s.conn).GetServers(ctx, &channelzpb.GetServersRequest{}); err != nil {
				t.Errorf("channelz: %v", err)
			}
			if log.String() != "" {
				t.Errorf("log: %s", log)
			}
		})
	}
}

// R21: a client that retries by its service config waits for as long as the trailer says, and not by its own backoff,
// which here is far longer.
func TestClientRetriesHonourThePushback(t *testing.T) {
	const pushback = 60 * time.Millisecond
	config := `{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":4,"initialBackoff":"100s",` +
		`"maxBackoff":"100s","backoffMultiplier":1,"retryableStatusCodes":["ABORTED"]}}]}`
	locks := locktest.New(t)
	tries := make(chan time.Time, 9)
	var lease *core.Lease
	locker := core.LockerFunc(func(ctx context.Context, key string, opts ...core.Option) (*core.Lease, error) {
		tries <- time.Now()
		if len(tries) == 3 { // two refusals
			_ = lease.Release(ctx)
		}
		return locks.Acquire(ctx, key, opts...)
	})
	opts := []grpclock.Option{grpclock.WithLocker(locker), grpclock.WithRetryAfter(pushback)}
	s := openWith(t, handlers{stream: receive}, []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(grpclock.UnaryServerInterceptor(byOrder, opts...)),
		grpc.ChainStreamInterceptor(grpclock.StreamServerInterceptor(byOrder, opts...)),
	}, grpc.WithDefaultServiceConfig(config))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for name, call := range map[string]func() error{
		"unary":  func() error { return s.call(ctx, methodPay, order("42")) },
		"stream": func() error { return ended(s.follow(ctx, order("42"))) },
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			if lease, err = locks.Acquire(ctx, "order.id:42"); err != nil {
				t.Fatal(err)
			}
			if err := call(); err != nil {
				t.Fatal(err)
			}
			before := <-tries
			for len(tries) > 0 {
				next := <-tries
				if waited := next.Sub(before); waited < pushback {
					t.Errorf("the client came again after %v", waited)
				}
				before = next
			}
			free(t, locks, "order.id:42")
		})
	}
}

// An order that is locked over HTTP or by hand is the same lock here.
func TestNamedKeyIsTheOneLockedByHand(t *testing.T) {
	locks := locktest.New(t)
	key := grpclock.Named("order", grpclock.Field("order.number"))
	s := open(t, handlers{}, key, grpclock.WithLocker(locks))
	held(t, locks, "order:"+strconv.Itoa(42))
	wantStatus(t, s.call(context.Background(), methodPay, `{"order":{"number":"42"}}`), codes.Aborted, grpclock.ReasonBusy)
}
