package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// jaeger is a running Jaeger.
type jaeger struct {
	otlp, api string // host:port of its receiver and of its API
	cmd       *exec.Cmd
	exited    chan error
}

const config = `
service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines:
    traces: {receivers: [otlp], exporters: [jaeger_storage_exporter]}
  telemetry:
    metrics: {level: none}
    logs: {level: warn}
extensions:
  jaeger_storage: {backends: {memory: {memory: {max_traces: 1000}}}}
  jaeger_query:
    storage: {traces: memory}
    http: {endpoint: "%s"}
    grpc: {endpoint: "%s"}
receivers:
  otlp: {protocols: {grpc: {endpoint: "%s"}}}
exporters:
  jaeger_storage_exporter: {trace_storage: memory}
`

func startJaeger(ctx context.Context, dir string) (*jaeger, error) {
	fmt.Println("building Jaeger; the first time takes minutes")
	binary := filepath.Join(dir, "jaeger")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/jaegertracing/jaeger/cmd/jaeger")
	build.Stdout, build.Stderr = os.Stdout, os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("building Jaeger: %w", err)
	}
	addrs, err := freeAddrs(3)
	if err != nil {
		return nil, err
	}
	j := &jaeger{api: addrs[0], otlp: addrs[2], exited: make(chan error, 1)}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, addrs[0], addrs[1], addrs[2]), 0o600); err != nil {
		return nil, err
	}
	j.cmd = exec.Command(binary, "--config", file)
	j.cmd.Stdout, j.cmd.Stderr = os.Stderr, os.Stderr
	j.cmd.Env = append(os.Environ(), "OTEL_TRACES_SAMPLER=always_off") // it traces itself otherwise, to a port of no one's
	if err := j.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { j.exited <- j.cmd.Wait() }()
	if err := j.ready(ctx); err != nil {
		j.stop()
		return nil, err
	}
	return j, nil
}

// freeAddrs returns addresses on loopback that were free a moment ago.
func freeAddrs(n int) ([]string, error) {
	var addrs []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}

func (j *jaeger) ready(ctx context.Context) error {
	return poll(ctx, "Jaeger to start", func() error {
		select {
		case err := <-j.exited:
			j.exited <- err
			return fatal{fmt.Errorf("Jaeger has ended: %v", err)}
		default:
		}
		var services struct{}
		if err := j.get(ctx, "/api/services", &services); err != nil {
			return err
		}
		conn, err := net.Dial("tcp", j.otlp)
		if err == nil {
			conn.Close()
		}
		return err
	})
}

func (j *jaeger) stop() {
	j.cmd.Process.Signal(os.Interrupt)
	select {
	case <-j.exited:
	case <-time.After(10 * time.Second):
		j.cmd.Process.Kill()
		<-j.exited
	}
}

func (j *jaeger) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+j.api+path, nil)
	if err != nil {
		return err
	}
	reply, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, reply.Status)
	}
	return json.NewDecoder(reply.Body).Decode(into)
}

// fatal ends a poll at once.
type fatal struct{ error }

// poll calls ready until it is, for a minute at most.
func poll(ctx context.Context, what string, ready func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		if _, ok := err.(fatal); ok {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s: %w", what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
