package main

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/latchkit/latchkit/internal/demo"
	"github.com/latchkit/latchkit/internal/redistest"
)

// The workers are processes of the test's own program.
func TestMain(m *testing.M) {
	demo.Child(standBy)
	goleak.VerifyTestMain(m)
}

func TestOnEmbeddedRedis(t *testing.T) { expect(t, "") }

func TestOnRealRedis(t *testing.T) { expect(t, redistest.Start(t).Addr()) }

var (
	leads   = regexp.MustCompile(`(?m)^ *[\d.]+s  (\w+) leads, with fence \d+$`)
	kills   = regexp.MustCompile(`(?m)^ *[\d.]+s  kill -9 of (\w+), who leads$`)
	summary = regexp.MustCompile(`^(\w+) took over ([\d.]+)s after (\w+) was killed \(TTL 2s\); (\d+) jobs, each run once$`)
)

func expect(t *testing.T, addr string) {
	t.Parallel() // most of it is waiting
	var out bytes.Buffer
	if err := demo.Run(t.Context(), &out, addr, run); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	t.Log("\n" + out.String())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	last := summary.FindStringSubmatch(lines[len(lines)-1])
	led, killed := leads.FindAllStringSubmatch(out.String(), -1), kills.FindStringSubmatch(out.String())
	if last == nil || len(led) != 2 || killed == nil {
		t.Fatal("not what was to be shown")
	}
	if led[0][1] != killed[1] || last[3] != killed[1] || led[1][1] != last[1] || last[1] == last[3] {
		t.Errorf("%s led and %s was killed; then %s led", led[0][1], killed[1], led[1][1])
	}
	if took, _ := strconv.ParseFloat(last[2], 64); took <= 0 || took > ttl.Seconds()+10 {
		t.Errorf("the take-over took %.2fs", took)
	}
	if n, _ := strconv.Atoi(last[4]); n < 2*enough {
		t.Errorf("%d jobs", n)
	}
}
