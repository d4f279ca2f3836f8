package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/latchkit/latchkit/internal/demo"
	"github.com/latchkit/latchkit/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOnEmbeddedRedis(t *testing.T) { expect(t, "") }

func TestOnRealRedis(t *testing.T) { expect(t, redistest.Start(t).Addr()) }

var (
	holds   = regexp.MustCompile(`Orders holds order 42 under fence (\d+)`)
	charges = regexp.MustCompile(`Billing charges order 42 under fence (\d+)`)
)

func expect(t *testing.T, addr string) {
	var out bytes.Buffer
	if err := demo.Run(t.Context(), &out, addr, run); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + out.String())
	strangers, known, _ := strings.Cut(out.String(), "The owner travels")
	if charges.MatchString(strangers) || !strings.Contains(strangers, "the payment: Aborted") {
		t.Error("two strangers held the order at once")
	}
	held, charged := holds.FindStringSubmatch(known), charges.FindAllStringSubmatch(known, -1)
	if held == nil || len(charged) != 1 || charged[0][1] != held[1] || !strings.Contains(known, "the payment: order 42 is paid") {
		t.Error("Billing did not take part in the lock of Orders")
	}
	if n := strings.Count(out.String(), "somebody else calls Billing meanwhile: Aborted"); n != 2 {
		t.Errorf("somebody else was kept out %d times", n)
	}
}
