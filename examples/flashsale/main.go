// Flashsale sells a stock to more buyers than there are pieces, on eight instances of a shop, each a process of its own:
// without a lock, with one lock for the whole shop, and with a lock per article (SKU).
//
//	go run ./examples/flashsale                        on a Redis inside the program
//	go run ./examples/flashsale -redis localhost:6379  on a real one
package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/latchkit/latchkit/internal/demo"
)

func main() {
	demo.Child(instance)
	demo.Main(func(ctx context.Context, out io.Writer, redisAddr string) error {
		return run(ctx, out, redisAddr, rush)
	})
}

func run(ctx context.Context, out io.Writer, redisAddr string, p plan) error {
	s, err := open(redisAddr, p)
	if err != nil {
		return err
	}
	defer s.close()

	fmt.Fprintf(out, "%d buyers ask for %d pieces each; the shop has %d pieces of each of %d articles, and %d instances.\n\n",
		p.buyers, p.wishes, p.pieces, p.articles, p.instances)
	var results []result
	for _, way := range ways {
		if err := s.restock(ctx); err != nil {
			return err
		}
		r, err := s.sell(ctx, way, newBar(out, way.name, p.requests()))
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	report(out, results, p.stock())
	return nil
}

func report(out io.Writer, results []result, stock int) {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "lock\tsold\taccuracy\tmean\tp99\trequests/s")
	for _, r := range results {
		accuracy := "exact"
		if over := r.sold - stock; over != 0 {
			accuracy = fmt.Sprintf("oversold by %d", over)
		}
		fmt.Fprintf(table, "%s\t%d of %d\t%s\t%v\t%v\t%.0f\n", r.way.name, r.sold, stock, accuracy,
			rounded(r.mean()), rounded(r.quantile(0.99)), float64(len(r.took))/r.lasted.Seconds())
	}
	table.Flush()
}

func rounded(d time.Duration) time.Duration {
	if d < 100*time.Millisecond {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}
