package grpclock_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/grpclock"
)

func Example() {
	locks, err := core.New(core.Local()) // core.Redis(rdb) for all servers together
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())

	key := grpclock.Named("order", grpclock.Field("order.id"))
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpclock.UnaryServerInterceptor(key, grpclock.WithLocker(locks))),
		grpc.ChainStreamInterceptor(grpclock.StreamServerInterceptor(key, grpclock.WithLocker(locks))),
	)
	defer server.Stop()
}

func ExampleUnaryServerInterceptor() {
	locks, err := core.New(core.Local())
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	intercept := grpclock.UnaryServerInterceptor(grpclock.Field("value"), grpclock.WithLocker(locks),
		grpclock.WithCooldown(time.Minute))

	// What gRPC does with each call:
	info := &grpc.UnaryServerInfo{FullMethod: "/shop.Orders/Pay"}
	pay := func(ctx context.Context, _ any) (any, error) {
		lease, _ := core.FromContext(ctx)
		return "paid under " + lease.Key(), nil
	}
	for range 2 {
		fmt.Println(intercept(context.Background(), wrapperspb.String("42"), info, pay))
	}
	fmt.Println(intercept(context.Background(), wrapperspb.String(""), info, pay))
	// Output:
	// paid under value:42 <nil>
	// <nil> rpc error: code = AlreadyExists desc = a request for this resource was completed just now
	// <nil> rpc error: code = InvalidArgument desc = field "value" is missing or empty
}

func ExampleStreamServerInterceptor() {
	upload := grpclock.StreamServerInterceptor(grpclock.Metadata("upload-id"),
		grpclock.WithMethods("/shop.Files/Upload"),
		grpclock.WithAcquire(core.WithWait(2*time.Second)), // queue for a while instead of ABORTED at once
		grpclock.WithRetryAfter(5*time.Second))

	server := grpc.NewServer(grpc.StreamInterceptor(upload))
	defer server.Stop()
}

func ExampleMetadata() {
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("idempotency-key", "a1"))

	fmt.Println(grpclock.Metadata("idempotency-key")(ctx, nil))
	// Output: idempotency-key:a1 <nil>
}

func ExampleNamed() {
	key := grpclock.Named("order", grpclock.Field("value"))

	fmt.Println(key(context.Background(), wrapperspb.Int64(42)))
	// Output: order:42 <nil>
}

func ExampleJoin() {
	key := grpclock.Join(grpclock.Metadata("tenant"), grpclock.Named("order", grpclock.Field("value")))
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("tenant", "acme"))

	fmt.Println(key(ctx, wrapperspb.Int64(42)))
	// Output: tenant\:acme:order\:42 <nil>
}

func ExamplePerMethod() {
	key := grpclock.Named("order", grpclock.PerMethod(map[string]grpclock.KeyFunc{
		"/shop.Orders/Pay":    grpclock.Field("order.id"),
		"/shop.Orders/Cancel": grpclock.Field("order_id"),
	})) // all other methods pass

	server := grpc.NewServer(grpc.UnaryInterceptor(grpclock.UnaryServerInterceptor(key)))
	defer server.Stop()
}

func ExampleWithSuccess() {
	// A declined payment is an answer that stands: repetitions are turned away as completed too.
	intercept := grpclock.UnaryServerInterceptor(grpclock.Field("order.id"),
		grpclock.WithCooldown(time.Minute),
		grpclock.WithSuccess(func(ctx context.Context, resp any, err error) bool {
			return err == nil || err.Error() == "declined"
		}))
	_ = intercept
}
