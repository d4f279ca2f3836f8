// Grpcchain shows a service that holds order 42 and calls another one that locks order 42 too: first as two strangers,
// which get in each other's way, and then with the owner travelling along with the call.
//
//	go run ./examples/grpcchain                        on a Redis inside the program
//	go run ./examples/grpcchain -redis localhost:6379  on a real one
package main

import (
	"context"
	"fmt"
	"io"

	"google.golang.org/grpc/status"

	"github.com/latchkit/latchkit/grpclock"
	"github.com/latchkit/latchkit/internal/demo"
	"github.com/latchkit/latchkit/internal/demo/rpc"
)

func main() { demo.Main(run) }

func run(ctx context.Context, out io.Writer, redisAddr string) error {
	secret := grpclock.WithOwnerSecret([]byte("from the settings of both services"))
	for _, round := range []struct {
		title  string
		owners []grpclock.Option
	}{
		{"Two services that know nothing of each other", nil},
		{"The owner travels with the call, signed", []grpclock.Option{secret}},
	} {
		fmt.Fprintln(out, round.title)
		if err := pay(ctx, out, redisAddr, round.owners); err != nil {
			return err
		}
	}
	return nil
}

// pay starts both services and pays order 42.
func pay(ctx context.Context, out io.Writer, redisAddr string, owners []grpclock.Option) error {
	billing, err := startBilling(out, redisAddr, owners)
	if err != nil {
		return err
	}
	defer billing.stop()
	orders, err := startOrders(out, redisAddr, billing.addr, owners)
	if err != nil {
		return err
	}
	defer orders.stop()
	client, err := dial(orders.addr)
	if err != nil {
		return err
	}
	defer client.Close()

	reply, err := rpc.Call(ctx, client, methodPay, "42")
	fmt.Fprintf(out, "  the payment: %s\n\n", outcome(reply, err))
	return nil
}

func outcome(reply string, err error) string {
	if err != nil {
		return status.Code(err).String()
	}
	return reply
}
