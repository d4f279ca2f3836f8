// Command e2e-tracing proves that the spans of examples/tracing are what a real tracing backend shows: it builds Jaeger
// (minutes, the first time), runs the example against it, and asks its API for the traces. Everything is on loopback
// and in memory.
//
// It is a module of its own, so that Jaeger's requirements are not those of the library.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "e2e-tracing:", err)
		os.Exit(1)
	}
	fmt.Println("e2e-tracing: Jaeger shows both requests, their locks and the link between them")
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "e2e-tracing")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	jaeger, err := startJaeger(ctx, dir)
	if err != nil {
		return err
	}
	defer jaeger.stop()

	ids, err := runExample(ctx, jaeger.otlp)
	if err != nil {
		return err
	}
	var traces []trace
	for _, id := range ids {
		t, err := jaeger.trace(ctx, id)
		if err != nil {
			return err
		}
		traces = append(traces, t)
	}
	return judge(traces)
}

var answered = regexp.MustCompile(`200 OK   trace ([0-9a-f]{32})`)

// runExample returns the ids of the traces that the example has exported.
func runExample(ctx context.Context, otlp string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // it is built, too
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "run", "./examples/tracing", "-otlp", otlp)
	cmd.Dir = filepath.Join("..", "..", "..")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("the example: %w", err)
	}
	os.Stdout.Write(out)
	var ids []string
	for _, match := range answered.FindAllStringSubmatch(string(out), -1) {
		ids = append(ids, match[1])
	}
	if len(ids) != 2 {
		return nil, fmt.Errorf("the example told of %d traces, want 2", len(ids))
	}
	return ids, nil
}
