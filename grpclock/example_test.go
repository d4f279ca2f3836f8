package grpclock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/grpclock"
)

// payments stands for a service of yours.
type payments struct {
	testpb.UnimplementedTestServiceServer
}

func (payments) UnaryCall(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	lease, _ := core.FromContext(ctx)
	return &testpb.SimpleResponse{Hostname: "done under " + lease.Key()}, nil
}

func (payments) StreamingOutputCall(_ *testpb.StreamingOutputCallRequest, stream grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
	lease, _ := core.FromContext(stream.Context())
	return stream.Send(&testpb.StreamingOutputCallResponse{Payload: &testpb.Payload{Body: []byte("done under " + lease.Key())}})
}

// serveExample serves on a loopback port until close is called.
func serveExample(server *grpc.Server, dial ...grpc.DialOption) (client testpb.TestServiceClient, close func()) {
	testpb.RegisterTestServiceServer(server, payments{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	dial = append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient(listener.Addr().String(), dial...)
	if err != nil {
		panic(err)
	}
	return testpb.NewTestServiceClient(conn), func() {
		_ = conn.Close()
		server.Stop()
		<-served
	}
}

func Example() {
	ctx := context.Background()
	locks, err := core.New(core.Local()) // core.Redis(rdb) for all servers together
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)

	key := grpclock.Named("order", grpclock.Field("payload.body"))
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpclock.UnaryServerInterceptor(key, grpclock.WithLocker(locks))),
		grpc.ChainStreamInterceptor(grpclock.StreamServerInterceptor(key, grpclock.WithLocker(locks))),
	)
	client, stop := serveExample(server)
	defer stop()

	order42 := &testpb.SimpleRequest{Payload: &testpb.Payload{Body: []byte("42")}}
	elsewhere, _ := locks.Acquire(ctx, "order:42") // somebody else works on order 42

	_, err = client.UnaryCall(ctx, order42)
	for _, detail := range status.Convert(err).Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok {
			fmt.Println(status.Code(err), "come again in", retry.RetryDelay.AsDuration())
		}
	}

	elsewhere.Release(ctx)
	reply, err := client.UnaryCall(ctx, order42)
	fmt.Println(reply.GetHostname(), err)
	// Output:
	// Aborted come again in 1s
	// done under order:42 <nil>
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
	ctx := context.Background()
	locks, err := core.New(core.Local())
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)

	intercept := grpclock.StreamServerInterceptor(grpclock.Metadata("upload-id"),
		grpclock.WithLocker(locks),
		grpclock.WithMethods(testpb.TestService_StreamingOutputCall_FullMethodName),
		grpclock.WithAcquire(core.WithWait(2*time.Second)), // queue for a while instead of ABORTED at once
		grpclock.WithRetryAfter(5*time.Second))
	client, stop := serveExample(grpc.NewServer(grpc.StreamInterceptor(intercept)))
	defer stop()

	ctx = metadata.AppendToOutgoingContext(ctx, "upload-id", "7")
	stream, err := client.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{})
	if err != nil {
		panic(err)
	}
	reply, err := stream.Recv()
	fmt.Println(string(reply.GetPayload().GetBody()), err)
	// Output: done under upload-id:7 <nil>
}

// printKey is a Locker that shows what is locked.
var printKey = core.LockerFunc(func(_ context.Context, key string, _ ...core.Option) (*core.Lease, error) {
	fmt.Println("lock", key)
	return nil, nil
})

// intercepted calls a method as gRPC does.
func intercepted(intercept grpc.UnaryServerInterceptor, method string, req any) {
	_, err := intercept(context.Background(), req, &grpc.UnaryServerInfo{FullMethod: method},
		func(context.Context, any) (any, error) { return nil, nil })
	if err != nil {
		fmt.Println(err)
	}
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
		"/shop.Orders/Pay":    grpclock.Field("value"),
		"/shop.Orders/Cancel": grpclock.Field("payload.body"),
	}))
	intercept := grpclock.UnaryServerInterceptor(key, grpclock.WithLocker(printKey))

	intercepted(intercept, "/shop.Orders/Pay", wrapperspb.String("42"))
	intercepted(intercept, "/shop.Orders/Cancel", &testpb.SimpleRequest{Payload: &testpb.Payload{Body: []byte("42")}})
	intercepted(intercept, "/shop.Orders/List", nil) // passes
	// Output:
	// lock order:42
	// lock order:42
}

func ExampleWithMethods() {
	intercept := grpclock.UnaryServerInterceptor(grpclock.Field("value"), grpclock.WithLocker(printKey),
		grpclock.WithMethods("/shop.Orders/Pay", "/shop.Orders/Cancel"))

	intercepted(intercept, "/shop.Orders/Pay", wrapperspb.String("42"))
	intercepted(intercept, "/shop.Orders/List", nil) // passes
	// Output: lock value:42
}

func ExampleWithPerMethod() {
	intercept := grpclock.UnaryServerInterceptor(grpclock.Field("value"), grpclock.WithLocker(printKey),
		grpclock.WithPerMethod())

	intercepted(intercept, "/shop.Orders/Pay", wrapperspb.String("42"))
	intercepted(intercept, "/shop.Orders/Cancel", wrapperspb.String("42"))
	// Output:
	// lock /shop.Orders/Pay value:42
	// lock /shop.Orders/Cancel value:42
}

func ExampleWithSuccess() {
	locks, err := core.New(core.Local())
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())

	// A declined payment is an answer that stands: repetitions are turned away as completed too.
	intercept := grpclock.UnaryServerInterceptor(grpclock.Field("value"), grpclock.WithLocker(locks),
		grpclock.WithCooldown(time.Minute),
		grpclock.WithSuccess(func(ctx context.Context, resp any, err error) bool {
			return err == nil || status.Code(err) == codes.FailedPrecondition
		}))

	info := &grpc.UnaryServerInfo{FullMethod: "/shop.Orders/Pay"}
	for range 2 {
		_, err := intercept(context.Background(), wrapperspb.String("42"), info, func(context.Context, any) (any, error) {
			return nil, status.Error(codes.FailedPrecondition, "declined")
		})
		fmt.Println(status.Code(err), errors.Is(err, core.ErrNotAcquired))
	}
	// Output:
	// FailedPrecondition false
	// AlreadyExists true
}

// newLocks stands for locks with a store, such as core.New(core.Redis(rdb)).
func newLocks(store core.Backend) *core.Locks {
	locks, err := core.New(store)
	if err != nil {
		panic(err)
	}
	return locks
}

// Without it, the locker of core.SetDefault is used.
func ExampleWithLocker() {
	intercept := grpclock.UnaryServerInterceptor(grpclock.Field("value"), grpclock.WithLocker(printKey))

	intercepted(intercept, "/shop.Orders/Pay", wrapperspb.String("42"))
	// Output: lock value:42
}

// Later calls wait for their turn instead of being refused.
func ExampleWithAcquire() {
	locks := newLocks(core.Local())
	defer locks.Close(context.Background())
	intercept := grpclock.UnaryServerInterceptor(grpclock.Field("value"), grpclock.WithLocker(locks),
		grpclock.WithAcquire(core.WithWait(5*time.Second)))

	elsewhere, _ := locks.Acquire(context.Background(), "value:42")
	time.AfterFunc(10*time.Millisecond, func() { elsewhere.Release(context.Background()) })
	intercepted(intercept, "/shop.Orders/Pay", wrapperspb.String("42"))
	fmt.Println("paid")
	// Output: paid
}

// A second submission of what has just succeeded is turned away.
func ExampleWithCooldown() {
	locks := newLocks(core.Local())
	defer locks.Close(context.Background())
	intercept := grpclock.UnaryServerInterceptor(grpclock.Field("value"), grpclock.WithLocker(locks),
		grpclock.WithCooldown(time.Minute))

	intercepted(intercept, "/shop.Orders/Pay", wrapperspb.String("42"))
	intercepted(intercept, "/shop.Orders/Pay", wrapperspb.String("42"))
	// Output: rpc error: code = AlreadyExists desc = a request for this resource was completed just now
}

func ExampleWithRetryAfter() {
	locks := newLocks(core.Local())
	defer locks.Close(context.Background())
	intercept := grpclock.UnaryServerInterceptor(grpclock.Field("payload.body"), grpclock.WithLocker(locks),
		grpclock.WithRetryAfter(5*time.Second))
	client, stop := serveExample(grpc.NewServer(grpc.UnaryInterceptor(intercept)))
	defer stop()

	elsewhere, _ := locks.Acquire(context.Background(), "payload.body:42") // somebody else works on it
	defer elsewhere.Release(context.Background())
	var trailer metadata.MD
	_, err := client.UnaryCall(context.Background(), &testpb.SimpleRequest{Payload: &testpb.Payload{Body: []byte("42")}},
		grpc.Trailer(&trailer))
	fmt.Println(status.Code(err), trailer["grpc-retry-pushback-ms"])
	// Output: Aborted [5000]
}

// Payments are refused while the fallback can lock in this process only.
func ExampleWithAllowDegraded() {
	intercept := grpclock.UnaryServerInterceptor(grpclock.Field("value"), grpclock.WithLocker(printKey),
		grpclock.WithAllowDegraded(false))

	intercepted(intercept, "/shop.Orders/Pay", wrapperspb.String("42"))
	// Output: lock value:42
}

// A service that holds order 42 calls another, which locks order 42 as well.
func ExampleUnaryClientInterceptor() {
	ctx := context.Background()
	store := core.Local() // core.Redis(rdb), for services on several machines
	caller, called := newLocks(store), newLocks(store)
	defer caller.Close(ctx)
	defer called.Close(ctx)

	secret := []byte("the same 16 bytes or more on both ends")
	key := grpclock.Named("order", grpclock.Field("payload.body"))
	client, stop := serveExample(
		grpc.NewServer(grpc.UnaryInterceptor(
			grpclock.UnaryServerInterceptor(key, grpclock.WithLocker(called), grpclock.WithOwnerSecret(secret)))),
		grpc.WithUnaryInterceptor(
			grpclock.UnaryClientInterceptor(grpclock.WithOwnerSecret(secret))))
	defer stop()

	order42 := &testpb.SimpleRequest{Payload: &testpb.Payload{Body: []byte("42")}}
	err := core.Do(ctx, caller, "order:42", func(ctx context.Context) error {
		reply, err := client.UnaryCall(ctx, order42)
		fmt.Println(reply.GetHostname())

		_, busy := client.UnaryCall(context.Background(), order42) // not under the lock
		fmt.Println(status.Code(busy))
		return err
	})
	fmt.Println(err)
	// Output:
	// done under order:42
	// Aborted
	// <nil>
}

func ExampleStreamClientInterceptor() {
	ctx := context.Background()
	store := core.Local() // core.Redis(rdb), for services on several machines
	caller, called := newLocks(store), newLocks(store)
	defer caller.Close(ctx)
	defer called.Close(ctx)

	secret := grpclock.WithOwnerSecret([]byte("the same 16 bytes or more on both ends"))
	client, stop := serveExample(
		grpc.NewServer(grpc.StreamInterceptor(
			grpclock.StreamServerInterceptor(grpclock.Metadata("upload-id"), grpclock.WithLocker(called), secret))),
		grpc.WithStreamInterceptor(grpclock.StreamClientInterceptor(secret)))
	defer stop()

	err := core.Do(ctx, caller, "upload-id:7", func(ctx context.Context) error {
		ctx = metadata.AppendToOutgoingContext(ctx, "upload-id", "7")
		stream, err := client.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{})
		if err != nil {
			return err
		}
		reply, err := stream.Recv()
		fmt.Println(string(reply.GetPayload().GetBody()))
		return err
	})
	fmt.Println(err)
	// Output:
	// done under upload-id:7
	// <nil>
}

// See also UnaryClientInterceptor: both ends are given the secret.
func ExampleWithOwnerSecret() {
	secret := grpclock.WithOwnerSecret([]byte("the same 16 bytes or more on both ends"))

	_ = grpc.NewServer(grpc.UnaryInterceptor(grpclock.UnaryServerInterceptor(grpclock.Field("order.id"), secret)))
	_ = grpc.WithUnaryInterceptor(grpclock.UnaryClientInterceptor(secret))
	// Output:
}
