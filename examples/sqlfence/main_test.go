package main

import (
	"bytes"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/latchkit/latchkit/internal/demo"
	"github.com/latchkit/latchkit/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOnEmbeddedRedis(t *testing.T) { expect(t, "") }

func TestOnRealRedis(t *testing.T) { expect(t, redistest.Start(t).Addr()) }

func expect(t *testing.T, addr string) {
	var out bytes.Buffer
	if err := demo.Run(t.Context(), &out, addr, run); err != nil {
		t.Fatal(err)
	}
	blind, fenced, _ := strings.Cut(out.String(), "refuses an older fence")
	for _, want := range []struct{ part, text string }{
		{blind, "A goes on, sells 1 and writes 9: done"},
		{blind, "5 are sold, and the table says 9 are left"},
		{fenced, "B takes the lock over, sells 4 and writes 6: done"},
		{fenced, "A goes on, sells 1 and writes 9: refused, a later holder has written"},
		{fenced, "4 are sold, and the table says 6 are left"},
	} {
		if !strings.Contains(want.part, want.text) {
			t.Errorf("no %q in\n%s", want.text, want.part)
		}
	}
}
