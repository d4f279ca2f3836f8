package chaos

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/history"
)

// outcome is what must come of a fault.
type outcome string

const (
	// excluded: leases that have not ended never overlap.
	excluded outcome = "excluded"
	// fenced: the lock can be forgotten by its server. A second holder may come in; the first is told by its next renewal,
	// and the fence keeps its late writes out.
	fenced outcome = "not excluded; told and fenced"
	// flagged: leases without Redis behind them overlap those of other processes. They say so, and have no fence.
	flagged outcome = "excluded where not Degraded"
)

// result is what came of it.
type result struct {
	row       *row
	holds     int
	refused   int
	lost      int
	degraded  int
	overlaps  int
	keptOut   int  // accesses to the register that fences refused
	torn      bool // the register without fences lost an update
	recovered time.Duration
}

// verdict ends the arena's work and judges it.
func (a *arena) verdict(r *row, recovered time.Duration) result {
	a.Helper()
	stop(a.TB, a.workers)
	holds, err := history.Read(a.paths...)
	if err != nil {
		a.Fatal(err)
	}
	res := result{row: r, recovered: recovered, keptOut: a.register.Refused()}
	for _, h := range holds {
		switch {
		case h.Granted():
			res.holds++
		case h.Refused != "":
			res.refused++
		}
		if h.LostAt != 0 {
			res.lost++
		}
		if h.Degraded {
			res.degraded++
		}
	}
	overlaps := history.Overlaps(holds)
	res.overlaps = len(overlaps)
	res.torn = len(history.Linearizable("", a.register.Plain())) > 0

	broken := history.Fences(holds, r.must == excluded)
	broken = append(broken, history.GoesBack(a.register.Fenced())...)
	broken = append(broken, history.Linearizable("the fenced register is linearizable", a.register.Fenced())...)
	if r.must == fenced {
		broken = append(broken, untold(overlaps, a.order.TTL)...)
	} else {
		broken = append(broken, overlaps...)
	}
	a.report(broken)
	return res
}

// untold returns the overlaps that go on for longer than until the next renewals could tell the holders who were
// forgotten. Who is there rightly, beside others of its kind, may go on. A victim is not renewed, and asks by itself.
func untold(overlaps []history.Violation, ttl time.Duration) []history.Violation {
	return slices.DeleteFunc(overlaps, func(v history.Violation) bool {
		if v.Rule != "overlap" {
			return false
		}
		last := len(v.Holds) - 1
		next := v.Holds[last]
		stay := slices.DeleteFunc(slices.Clone(v.Holds[:last]), func(h *history.Hold) bool {
			return h.Process == victimProcess || h.Told() <= next.Start+int64(ttl)
		})
		return history.Collide(stay, next) == ""
	})
}

// TestUntold: a permit's holder who came after the server had forgotten is not one who should have been told.
func TestUntold(t *testing.T) {
	permit := func(start, end time.Duration) *history.Hold {
		return &history.Hold{Request: history.Request{Key: "k", Kind: core.Limited, Limit: 2}, Process: "p",
			Start: int64(start), Until: int64(end)}
	}
	first, second := permit(1, 900), permit(2, 900)
	rightly, next := permit(100, 9000), permit(101, 9000)
	for _, c := range []struct {
		holds []*history.Hold
		want  int
	}{
		{[]*history.Hold{first, second, rightly, next}, 0},
		{[]*history.Hold{first, permit(2, 8000), rightly, next}, 1},
	} {
		if got := untold([]history.Violation{{Rule: "overlap", Holds: c.holds}}, 1000); len(got) != c.want {
			t.Errorf("%d, want %d: %v", len(got), c.want, got)
		}
	}
}

// refusals says what Acquire has been answered since began, and how often.
func refusals(paths []string, began time.Time) string {
	holds, err := history.Read(paths...)
	if err != nil {
		return err.Error()
	}
	times, since := map[string]int{}, history.Now()-int64(time.Since(began))
	for _, h := range holds {
		if h.Asked > since {
			times[fmt.Sprintf("%s %q: %s", h.Process, h.Key, h.Refused)]++
		}
	}
	var text strings.Builder
	for _, answer := range slices.Sorted(maps.Keys(times)) {
		fmt.Fprintf(&text, "\t%d times %s\n", times[answer], answer)
	}
	return text.String()
}

func (a *arena) report(broken []history.Violation) {
	a.Helper()
	for i, v := range broken {
		if i == 5 {
			a.Errorf("and %d more", len(broken)-i)
			break
		}
		a.Error(v)
	}
}

// table collects results over all rows.
type table struct {
	mu      sync.Mutex
	results []result
}

func (t *table) add(r result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.results = append(t.results, r)
}

// text is the table as Markdown, the results of a row added up.
func (t *table) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "| Fault | What must happen | Runs | Holds | Lost | Degraded | Overlaps | Kept out by fences | Unfenced register | Back at work after |\n")
	fmt.Fprintf(&b, "|---|---|--:|--:|--:|--:|--:|--:|---|--:|\n")
	for i := range rows {
		sum, runs := result{row: &rows[i]}, 0
		for _, r := range t.results {
			if r.row == sum.row {
				runs++
				sum.add(r)
			}
		}
		if runs == 0 {
			continue
		}
		register := "intact"
		if sum.torn {
			register = "lost updates"
		}
		fmt.Fprintf(&b, "| `%s` %s | %s | %d | %d | %d | %d | %d | %d | %s | %v |\n", sum.row.name, sum.row.fault, sum.row.must,
			runs, sum.holds, sum.lost, sum.degraded, sum.overlaps, sum.keptOut, register, sum.recovered.Round(10*time.Millisecond))
	}
	return b.String()
}

func (r *result) add(o result) {
	r.holds += o.holds
	r.refused += o.refused
	r.lost += o.lost
	r.degraded += o.degraded
	r.overlaps += o.overlaps
	r.keptOut += o.keptOut
	r.torn = r.torn || o.torn
	r.recovered = max(r.recovered, o.recovered)
}

func (t *table) print(tb testing.TB) {
	text := t.text()
	tb.Logf("\n%s", text)
	if *chaosTable != "" {
		if err := os.WriteFile(*chaosTable, []byte(text), 0o644); err != nil {
			tb.Error(err)
		}
	}
}
