package main

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/grpclock"
	"github.com/latchkit/latchkit/internal/demo/rpc"
	"github.com/latchkit/latchkit/otellock"
	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
)

const methodPay = "/shop.Orders/Pay"

// orders is one replica of the order service.
type orders struct {
	addr     string
	charging chan struct{} // told when a payment holds its lock
	stop     func()

	tracer trace.Tracer
}

func startOrders(redisAddr string, tp trace.TracerProvider) (*orders, error) {
	// ContextTimeoutEnabled has locks use this very client, so that its hooks see their commands.
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr, ContextTimeoutEnabled: true})
	// No statements: a lock's owner is among the arguments of its commands, and is a secret.
	if err := redisotel.InstrumentTracing(rdb, redisotel.WithTracerProvider(tp),
		redisotel.WithDBStatement(false), redisotel.WithCallerEnabled(false)); err != nil {
		return nil, err
	}
	locks, err := core.New(core.Redis(rdb), core.WithPrefix("shop:"), core.WithTracer(otellock.New(
		otellock.WithTracerProvider(tp),
		otellock.WithHolderLink(),
		otellock.WithKeyAttribute(func(key string) string { return key }), // an order's number is nobody's secret here
		otellock.WithName(func(key string) string { name, _, _ := strings.Cut(key, ":"); return name }),
	)))
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(
		grpc.StatsHandler(otelgrpc.NewServerHandler(
			otelgrpc.WithTracerProvider(tp), otelgrpc.WithPropagators(propagation.TraceContext{}))),
		grpc.UnaryInterceptor(grpclock.UnaryServerInterceptor(
			grpclock.Named("order", grpclock.Field("value")),
			grpclock.WithLocker(locks), grpclock.WithAcquire(core.WithWait(10*time.Second)))),
	)
	o := &orders{addr: listener.Addr().String(), charging: make(chan struct{}, 1), tracer: tp.Tracer("orders")}
	rpc.Register(server, methodPay, o.pay)
	go func() { _ = server.Serve(listener) }() // it ends with the server
	o.stop = func() {
		server.GracefulStop()
		_ = locks.Close(context.Background()) // GracefulStop has waited for all holders
		rdb.Close()
	}
	return o, nil
}

// pay runs under the lock of its order.
func (o *orders) pay(ctx context.Context, order string) (string, error) {
	_, span := o.tracer.Start(ctx, "charge the card")
	defer span.End()
	select {
	case o.charging <- struct{}{}:
	default:
	}
	select {
	case <-time.After(250 * time.Millisecond): // the card company takes its time
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	return "paid " + order, nil
}
