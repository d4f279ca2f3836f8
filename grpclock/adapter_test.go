package grpclock_test

import (
	"context"
	"errors"
	"testing"

	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/latchkit/latchkit/grpclock"
	"github.com/latchkit/latchkit/internal/adaptertest"
	"github.com/latchkit/latchkit/internal/admit"
)

// The cases that all adapters share, for a call and for each way in which a stream is locked.
func TestAsEveryAdapter(t *testing.T) {
	byField := grpclock.Named("order", byOrder)
	byMetadata := grpclock.Named("order", grpclock.Metadata("order-id"))
	t.Run("unary", func(t *testing.T) {
		adaptertest.Run(t, adaptertest.Adapter{Serve: func(t *testing.T, s adaptertest.Service) adaptertest.Call {
			shop := serve(t, s, byField)
			return func(ctx context.Context, op, id string) adaptertest.Answer {
				return answer(shop.call(ctx, operations[op], order(id)))
			}
		}})
	})
	t.Run("stream by its first message", func(t *testing.T) {
		adaptertest.Run(t, adaptertest.Adapter{Serve: func(t *testing.T, s adaptertest.Service) adaptertest.Call {
			shop := serve(t, s, byField)
			return func(ctx context.Context, op, id string) adaptertest.Answer {
				return answer(ended(shop.stream(ctx, streams[op], order(id))))
			}
		}})
	})
	t.Run("stream by its metadata", func(t *testing.T) {
		adaptertest.Run(t, adaptertest.Adapter{Serve: func(t *testing.T, s adaptertest.Service) adaptertest.Call {
			shop := serve(t, s, byMetadata)
			return func(ctx context.Context, op, id string) adaptertest.Answer {
				ctx = metadata.AppendToOutgoingContext(ctx, "order-id", id)
				return answer(ended(shop.stream(ctx, streams[op], `{}`)))
			}
		}})
	})
}

var (
	operations = map[string]string{"pay": methodPay, "cancel": methodCancel}
	streams    = map[string]string{"pay": methodFollow, "cancel": methodUnfollow}
)

// serve opens a shop that is the service s.
func serve(t *testing.T, s adaptertest.Service, key grpclock.KeyFunc) *shop {
	handle := func(ctx context.Context) error {
		method, _ := grpc.Method(ctx)
		op := "pay"
		if method == methodCancel || method == methodUnfollow {
			op = "cancel"
		}
		err := s.Handle(ctx, op)
		if errors.Is(err, adaptertest.ErrFailed) {
			return status.Error(codes.FailedPrecondition, err.Error())
		}
		return err
	}
	within := func(ctx context.Context) (context.Context, context.CancelFunc) {
		if s.Deadline == 0 {
			return ctx, func() {}
		}
		return context.WithTimeout(ctx, s.Deadline)
	}
	o := s.Options
	opts := []grpclock.Option{grpclock.WithAcquire(o.Acquire...), grpclock.WithCooldown(o.Cooldown),
		grpclock.WithRetryAfter(o.RetryAfter), grpclock.WithAllowDegraded(!o.RefuseDegraded)}
	if o.Locker != nil {
		opts = append(opts, grpclock.WithLocker(o.Locker))
	}
	if o.PerRoute {
		opts = append(opts, grpclock.WithPerMethod())
	}
	return openWith(t, handlers{
		unary: func(ctx context.Context, _ *dynamicpb.Message) error { return handle(ctx) },
		stream: func(ss grpc.ServerStream) error {
			if err := receive(ss); err != nil {
				return err
			}
			return handle(ss.Context())
		},
	}, []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(
			recovery.UnaryServerInterceptor(),
			func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
				ctx, cancel := within(ctx)
				defer cancel()
				return h(ctx, req)
			},
			grpclock.UnaryServerInterceptor(key, opts...)),
		grpc.ChainStreamInterceptor(
			recovery.StreamServerInterceptor(),
			func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
				wrapped := middleware.WrapServerStream(ss)
				ctx, cancel := within(ss.Context())
				defer cancel()
				wrapped.WrappedContext = ctx
				return h(srv, wrapped)
			},
			grpclock.StreamServerInterceptor(key, opts...)),
	})
}

var rows = map[string]admit.Row{
	grpclock.ReasonBusy:        admit.Busy,
	grpclock.ReasonCompleted:   admit.Completed,
	grpclock.ReasonInvalidKey:  admit.BadKey,
	grpclock.ReasonUnavailable: admit.Unavailable,
	grpclock.ReasonWaitEnded:   admit.Deadline,
	grpclock.ReasonMisuse:      admit.Misuse,
	grpclock.ReasonLeaseLost:   admit.LeaseLost,
}

// answer is a status as the shared cases want it.
func answer(err error) (a adaptertest.Answer) {
	if err == nil {
		return a
	}
	a.RetryAfter = max(retryInfo(err), 0)
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			a.Row = rows[info.Reason]
		}
	}
	a.Failed = a.Row == 0
	return a
}
