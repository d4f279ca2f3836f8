package admit

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
)

// An outage is in the log at once, with its cause, and then once in a while, however many requests it hits.
func TestAnOutageIsLoggedNowAndThen(t *testing.T) {
	var log bytes.Buffer
	before, known := slog.Default(), outages.logged
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	outages.logged = time.Time{}
	t.Cleanup(func() { slog.SetDefault(before); outages.logged = known })

	g := &Guard{}
	away := fmt.Errorf("%w: connection refused", core.ErrUnavailable)
	for range 100 {
		g.Refuse(context.Background(), away)
		g.Refuse(context.Background(), &core.NotAcquiredError{Key: "k"})
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "requests=1 ") ||
		!strings.Contains(text, "connection refused") || !strings.Contains(text, "level=WARN") {
		t.Errorf("a hundred refusals are told as\n%s", text)
	}
	if n := outages.count(time.Now().Add(outageEvery)); n != 100 {
		t.Errorf("after a while %d are told of, want the 99 and this one", n)
	}
}
