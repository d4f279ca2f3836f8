package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/grpclock"
	"github.com/latchkit/latchkit/internal/demo/rpc"
)

const (
	methodPay    = "/shop.Orders/Pay"
	methodCharge = "/shop.Billing/Charge"
)

// startBilling starts the service that is called. It locks the order, for others call it too.
func startBilling(out io.Writer, redisAddr string, owners []grpclock.Option) (*service, error) {
	return start(redisAddr, owners, func(server *grpc.Server) {
		rpc.Register(server, methodCharge, func(ctx context.Context, order string) (string, error) {
			lease, _ := core.FromContext(ctx)
			fmt.Fprintf(out, "  Billing charges order %s under fence %d\n", order, lease.Fence())
			return "order " + order + " is paid", nil
		})
	})
}

// startOrders starts the service that locks the order and calls Billing under the lock.
func startOrders(out io.Writer, redisAddr, billingAddr string, owners []grpclock.Option) (*service, error) {
	billing, err := dial(billingAddr, grpc.WithUnaryInterceptor(grpclock.UnaryClientInterceptor(owners...)))
	if err != nil {
		return nil, err
	}
	orders, err := start(redisAddr, owners, func(server *grpc.Server) {
		rpc.Register(server, methodPay, func(ctx context.Context, order string) (string, error) {
			lease, _ := core.FromContext(ctx)
			fmt.Fprintf(out, "  Orders holds order %s under fence %d, and calls Billing\n", order, lease.Fence())

			stranger := context.Background() // a call that is not made under the lock
			reply, err := rpc.Call(stranger, billing, methodCharge, order)
			fmt.Fprintf(out, "  somebody else calls Billing meanwhile: %s\n", outcome(reply, err))

			return rpc.Call(ctx, billing, methodCharge, order)
		})
	})
	if err != nil {
		billing.Close()
		return nil, err
	}
	return &service{orders.addr, func() { orders.stop(); billing.Close() }}, nil
}

type service struct {
	addr string
	stop func()
}

// start serves, each call under the lock of the order that it names. Every service has its own engine, as if it were on
// a machine of its own.
func start(redisAddr string, owners []grpclock.Option, register func(*grpc.Server)) (*service, error) {
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr})
	locks, err := core.New(core.Redis(rdb), core.WithPrefix("grpcchain:"))
	if err != nil {
		rdb.Close()
		return nil, err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(grpclock.UnaryServerInterceptor(
		grpclock.Named("order", grpclock.Field("value")), append(slices.Clip(owners), grpclock.WithLocker(locks))...)))
	register(server)
	s := &service{stop: func() {
		server.GracefulStop()
		_ = locks.Close(context.Background())
		rdb.Close()
	}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.stop()
		return nil, err
	}
	s.addr = listener.Addr().String()
	go func() { _ = server.Serve(listener) }()
	return s, nil
}

func dial(addr string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient(addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
}
