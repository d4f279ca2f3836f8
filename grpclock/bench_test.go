package grpclock_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/grpclock"
)

// BenchmarkUnary shows what the interceptor adds to a handler that does nothing: with a Locker that does nothing, and
// with locks of this process.
func BenchmarkUnary(b *testing.B) {
	none := core.LockerFunc(func(context.Context, string, ...core.Option) (*core.Lease, error) { return nil, nil })
	local, err := core.New(core.Local())
	if err != nil {
		b.Fatal(err)
	}
	defer local.Close(context.Background())
	withMetadata := metadata.NewIncomingContext(context.Background(), metadata.Pairs("idempotency-key", "42"))
	text := wrapperspb.String("42")
	nested := &grpc_testing.SimpleRequest{Payload: &grpc_testing.Payload{Body: []byte("42")}}

	for _, c := range []struct {
		name   string
		ctx    context.Context
		key    grpclock.KeyFunc
		req    any
		locker core.Locker
	}{
		{"bare", context.Background(), nil, text, none},
		{"constant", context.Background(), func(context.Context, any) (string, error) { return "42", nil }, text, none},
		{"field", context.Background(), grpclock.Field("value"), text, none},
		{"field nested", context.Background(), grpclock.Field("payload.body"), nested, none},
		{"field named", context.Background(), grpclock.Named("order", grpclock.Field("value")), text, none},
		{"field number", context.Background(), grpclock.Field("value"), wrapperspb.Int64(1 << 40), none},
		{"metadata", withMetadata, grpclock.Metadata("idempotency-key"), text, none},
		{"field local", context.Background(), grpclock.Field("value"), text, local},
	} {
		b.Run(c.name, func(b *testing.B) {
			call := grpc.UnaryServerInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
				return h(ctx, req)
			})
			if c.key != nil {
				call = grpclock.UnaryServerInterceptor(c.key, grpclock.WithLocker(c.locker))
			}
			info := &grpc.UnaryServerInfo{FullMethod: "/shop.Orders/Pay"}
			handler := func(context.Context, any) (any, error) { return nil, nil }
			b.ReportAllocs()
			for b.Loop() {
				if _, err := call(c.ctx, c.req, info, handler); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
