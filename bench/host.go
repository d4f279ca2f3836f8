package main

import (
	"fmt"
	"os"
	"testing"
)

// host lets this program start servers with what is made for tests.
type host struct {
	testing.TB
	endings []func()
	folders []string
}

func newHost() *host { return &host{} }

func (h *host) Helper()          {}
func (h *host) Name() string     { return "bench" }
func (h *host) Failed() bool     { return false }
func (h *host) Cleanup(f func()) { h.endings = append(h.endings, f) }

func (h *host) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (h *host) Skip(args ...any) { h.Fatal(args...) }

func (h *host) Fatal(args ...any) { h.Fatalf("%s", fmt.Sprint(args...)) }

func (h *host) Fatalf(format string, args ...any) {
	h.Logf(format, args...)
	h.close()
	os.Exit(1)
}

func (h *host) TempDir() string {
	dir, err := os.MkdirTemp("", "latchkit-bench-")
	if err != nil {
		h.Fatal(err)
	}
	h.folders = append(h.folders, dir)
	return dir
}

// close ends what was started, the latest first.
func (h *host) close() {
	for i := len(h.endings) - 1; i >= 0; i-- {
		h.endings[i]()
	}
	h.endings = nil
	for _, dir := range h.folders {
		_ = os.RemoveAll(dir)
	}
}
