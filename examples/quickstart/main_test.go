package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/latchkit/latchkit/internal/demo"
	"github.com/latchkit/latchkit/internal/redistest"
)

const want = "order 42: 1 handled, 49 refused; other orders: 20 handled"

func TestOnEmbeddedRedis(t *testing.T) { expect(t, "") }

// Twice, since the orders that the first run has paid would be refused for a minute.
func TestOnRealRedis(t *testing.T) {
	addr := redistest.Start(t).Addr()
	expect(t, addr)
	expect(t, addr)
}

func expect(t *testing.T, addr string) {
	var out bytes.Buffer
	if err := demo.Run(t.Context(), &out, addr, run); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-1]; last != want {
		t.Errorf("the last line is %q, want %q\n%s", last, want, out.String())
	}
}
