package grpclock_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/core/locktest"
	"github.com/latchkit/latchkit/grpclock"
)

// generated is a service of generated code whose handlers want to run under the lease from their first line.
type generated struct {
	testpb.UnimplementedTestServiceServer
	t *testing.T
}

func (g generated) underLease(ctx context.Context) {
	if lease, ok := core.FromContext(ctx); !ok || lease.Key() != "order:42" {
		g.t.Errorf("lease is %v", lease)
	}
}

func (g generated) UnaryCall(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	g.underLease(ctx)
	return &testpb.SimpleResponse{}, nil
}

func (g generated) StreamingOutputCall(_ *testpb.StreamingOutputCallRequest, ss grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
	g.underLease(ss.Context())
	return ss.Send(&testpb.StreamingOutputCallResponse{})
}

func (g generated) StreamingInputCall(ss grpc.ClientStreamingServer[testpb.StreamingInputCallRequest, testpb.StreamingInputCallResponse]) error {
	if _, err := ss.Recv(); err != nil {
		return err
	}
	g.underLease(ss.Context())
	return ss.SendAndClose(&testpb.StreamingInputCallResponse{})
}

func TestGeneratedService(t *testing.T) {
	locks := locktest.New(t)
	key := grpclock.Named("order", grpclock.Field("payload.body"))
	s := openServices(t, []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(grpclock.UnaryServerInterceptor(key, grpclock.WithLocker(locks))),
		grpc.ChainStreamInterceptor(grpclock.StreamServerInterceptor(key, grpclock.WithLocker(locks))),
	}, func(r grpc.ServiceRegistrar) { testpb.RegisterTestServiceServer(r, generated{t: t}) })
	client, ctx := testpb.NewTestServiceClient(s.conn), context.Background()
	order := &testpb.Payload{Body: []byte("42")}
	calls := map[string]func() error{
		"unary": func() error {
			_, err := client.UnaryCall(ctx, &testpb.SimpleRequest{Payload: order})
			return err
		},
		"server stream": func() error {
			ss, err := client.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{Payload: order})
			if err != nil {
				return err
			}
			return ended(ss)
		},
		"client stream": func() error {
			cs, err := client.StreamingInputCall(ctx)
			if err != nil {
				return err
			}
			if err := cs.Send(&testpb.StreamingInputCallRequest{Payload: order}); err != nil {
				return err
			}
			_, err = cs.CloseAndRecv()
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			if err := call(); err != nil {
				t.Error(err)
			}
			free(t, locks, "order:42")
			lease, err := locks.Acquire(ctx, "order:42")
			if err != nil {
				t.Fatal(err)
			}
			defer lease.Release(ctx)
			wantStatus(t, call(), codes.Aborted, grpclock.ReasonBusy)
		})
	}
}
