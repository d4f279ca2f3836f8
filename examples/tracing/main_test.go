package main

import (
	"bytes"
	"encoding/hex"
	"regexp"
	"strings"
	"testing"

	"github.com/latchkit/latchkit/internal/demo"
	"github.com/latchkit/latchkit/internal/otlptest"
	"github.com/latchkit/latchkit/internal/redistest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var answered = regexp.MustCompile(`200 OK   trace ([0-9a-f]{32})`)

// The terminal shows two trees; the second payment waits in its lock.acquire for the first.
func TestTrees(t *testing.T) {
	var out bytes.Buffer
	if err := demo.Run(t.Context(), &out, "", run); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + out.String())
	trees := strings.Split(out.String(), "\ntrace ")[1:]
	if answers := answered.FindAllString(out.String(), -1); len(answers) != 2 || len(trees) != 2 {
		t.Fatalf("%d answers, %d trees", len(answers), len(trees))
	}
	for _, tree := range trees {
		// The shop's server, its call, the call's other end, and below that the lock and the work.
		for _, line := range []string{
			`shop +POST /orders/:orderID/pay `, `shop +└─ shop.Orders/Pay `, `orders-. +└─ shop.Orders/Pay `,
			`orders-. +├─ lock.acquire .*order:42, acquired`, `orders-. +│  └─ eval`, `orders-. +├─ charge the card`, `orders-. +└─ lock.release .*of `,
		} {
			if !regexp.MustCompile(line).MatchString(tree) {
				t.Errorf("no line like %q in\n%s", line, tree)
			}
		}
	}
	if regexp.MustCompile(`holder \d`).MatchString(trees[0]) || !regexp.MustCompile(`holder \d`).MatchString(trees[1]) {
		t.Error("the second payment, and it alone, should have waited for a holder")
	}
	if strings.Contains(trees[0], "held up by") || !strings.Contains(trees[1], "held up by") {
		t.Error("the second payment, and it alone, should lead to the one that held it up")
	}
}

func TestOTLP(t *testing.T) {
	receiver := otlptest.Start(t)
	var out bytes.Buffer
	*otlp = receiver.Addr
	defer func() { *otlp = "" }()
	if err := demo.Run(t.Context(), &out, redistest.Start(t).Addr(), run); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "lock.acquire") {
		t.Error("the spans were printed as well")
	}
	traces := make(map[string]bool)
	for _, a := range answered.FindAllStringSubmatch(out.String(), -1) {
		traces[a[1]] = true
	}
	acquires := receiver.Spans("lock.acquire")
	if len(acquires) != 2 || len(traces) != 2 {
		t.Fatalf("%d acquires, %d traces were told", len(acquires), len(traces))
	}
	for _, a := range acquires {
		if !traces[hex.EncodeToString(a.TraceId)] || !strings.HasPrefix(a.Service, "orders-") {
			t.Errorf("an acquire of %s in another trace %x", a.Service, a.TraceId)
		}
	}
}
