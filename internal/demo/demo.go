// Package demo is what the examples share: a Redis to run on, and more processes of the same program.
package demo

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/latchkit/latchkit/internal/embedded"
)

// Main is the main function of an example. It adds the flag -redis to those of the program, parses them, and calls run
// under a context that ends with an interrupt.
func Main(run func(ctx context.Context, out io.Writer, redisAddr string) error) {
	addr := flag.String("redis", "", "`host:port` of a Redis; one inside the program unless set")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := Run(ctx, os.Stdout, *addr, run); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
}

// Run calls run with the address of a Redis: redisAddr, or one inside the program if it is empty.
func Run(ctx context.Context, out io.Writer, redisAddr string, run func(context.Context, io.Writer, string) error) error {
	if redisAddr == "" {
		addr, stop, err := embedded.Start()
		if err != nil {
			return err
		}
		defer stop()
		redisAddr = addr
	}
	return run(ctx, out, redisAddr)
}
