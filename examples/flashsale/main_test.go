package main

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"testing"

	"go.uber.org/goleak"

	"github.com/latchkit/latchkit/internal/demo"
	"github.com/latchkit/latchkit/internal/redistest"
)

func TestMain(m *testing.M) {
	demo.Child(instance)
	goleak.VerifyTestMain(m)
}

func TestOnEmbeddedRedis(t *testing.T) { expect(t, "") }

func TestOnRealRedis(t *testing.T) { expect(t, redistest.Start(t).Addr()) }

func expect(t *testing.T, addr string) {
	var out bytes.Buffer
	small := plan{instances: 3, buyers: 30, wishes: 2, articles: 5, pieces: 4}
	err := demo.Run(t.Context(), &out, addr, func(ctx context.Context, out io.Writer, addr string) error { return run(ctx, out, addr, small) })
	if err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + out.String())
	for _, line := range []string{`none +\d+ of 20 +oversold by [1-9]`, `per shop +20 of 20 +exact`, `per SKU +20 of 20 +exact`} {
		if !regexp.MustCompile(`(?m)^` + line).Match(out.Bytes()) {
			t.Errorf("no line like %q", line)
		}
	}
	if bytes.ContainsRune(out.Bytes(), '\r') {
		t.Error("a bar was drawn where there is no terminal")
	}
}

func TestBar(t *testing.T) {
	var out bytes.Buffer
	b := newBar(&out, "per SKU", 80)
	b.out = &out // as if it were a terminal
	for range 80 {
		b.step()
	}
	full := "\rper SKU    [" + string(bytes.Repeat([]byte("#"), columns)) + "] 80/80"
	if !bytes.HasSuffix(out.Bytes(), []byte(full)) || bytes.Count(out.Bytes(), []byte("\r")) != columns+1 {
		t.Errorf("%q", out.String())
	}
}
