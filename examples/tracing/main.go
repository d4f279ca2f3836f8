// Command tracing shows one request as one trace, from the HTTP server down to the commands that its lock sends to
// Redis, and what it looks like when two requests want the same order.
//
//	go run ./examples/tracing                          the trees of spans, here in the terminal
//	go run ./examples/tracing -otlp localhost:4317     the same in Jaeger, or any backend that speaks OTLP
//	go run ./examples/tracing -redis localhost:6379    on a Redis of yours instead of one inside the program
//
// A shop (gin) takes payments and calls one of two replicas of an order service (gRPC). Each replica locks the order
// while it charges the card. The second payment of order 42 arrives at the other replica while the first is under way:
// it waits, its lock.acquire shows for how long, and links to the lock.acquire that held it up.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/latchkit/latchkit/internal/demo"
)

var otlp = flag.String("otlp", "", "send the spans to this OTLP gRPC receiver, `host:port`, and print trace ids only")

func main() { demo.Main(run) }

func run(ctx context.Context, out io.Writer, redisAddr string) error {
	spans, err := newTelemetry(ctx, *otlp)
	if err != nil {
		return err
	}
	return errors.Join(serve(out, spans, redisAddr), spans.finish(ctx, out))
}

// serve runs the shop and the order service for two payments. When it returns they have ended all their spans.
func serve(out io.Writer, spans *telemetry, redisAddr string) error {
	first, err := startOrders(redisAddr, spans.service("orders-1"))
	if err != nil {
		return err
	}
	defer first.stop()
	second, err := startOrders(redisAddr, spans.service("orders-2"))
	if err != nil {
		return err
	}
	defer second.stop()
	shop, stop, err := newShop(spans.service("shop"), first.addr, second.addr)
	if err != nil {
		return err
	}
	defer stop()
	server := httptest.NewServer(shop)
	defer server.Close()
	return payTwice(out, server.URL, first.charging)
}

// payTwice sends the second payment of the same order while the first is being charged.
func payTwice(out io.Writer, url string, charging <-chan struct{}) error {
	answers := make(chan answer, 2)
	pay := func() { answers <- post(url + "/orders/42/pay") }
	go pay()
	select {
	case <-charging:
	case a := <-answers:
		return fmt.Errorf("the first payment never got to the card: %w", a.err)
	}
	go pay()
	for range 2 {
		a := <-answers
		if a.err != nil {
			return a.err
		}
		fmt.Fprintf(out, "POST /orders/42/pay   %s   trace %s\n", a.status, a.trace)
	}
	return nil
}

type answer struct {
	status, trace string
	err           error
}

func post(url string) answer {
	client := http.Client{Timeout: time.Minute}
	defer client.CloseIdleConnections()
	reply, err := client.Post(url, "", nil)
	if err != nil {
		return answer{err: err}
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", reply.Status, body)
	}
	return answer{status: reply.Status, trace: reply.Header.Get(traceHeader), err: err}
}
