package mutants

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

var run = flag.Bool("mutants", false, "run the tests that must catch each mutant; otherwise only see whether it can be made")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "../.."

// mutant is a broken variant.
type mutant struct {
	name  string
	edits []edit
	// caught by this test, which must fail and say why in these words: a regular expression.
	pkg, test, why string
	// tries is how often the test may run: some wait for a chance.
	tries int
}

// edit replaces the one place where old stands.
type edit struct{ file, old, new string }

var mutants = []mutant{
	{
		name:  "an extension does not check the owner",
		edits: []edit{{"core/lua/lock.lua", "elseif value == nil or sub(value, 1, 32) ~= owner then", "elseif value == nil then"}},
		pkg:   "./internal/chaos", test: "TestChaos/redis/restart-empty", why: "the victim asks for more time, and is told|overlap: ", tries: 10,
	},
	{
		name:  "the deadline leaves nothing for clocks that drift",
		edits: []edit{{"core/tenure.go", "return ttl/100 + 2*time.Millisecond", "return 0"}},
		pkg:   "./internal/chaos", test: "TestChaos/redis/clock-fast", why: "overlap: ", tries: 10,
	},
	{
		name:  "fences of a RedLock are not written back",
		edits: []edit{{"core/redlock_round.go", "if !agreed {", "if !agreed && false {"}},
		pkg:   "./internal/chaos", test: "TestChaos/redlock/clock-ahead", why: "fences: ", tries: 10,
	},
	{
		name: "renewal goes on after the release",
		edits: []edit{
			{"core/lease.go", "\tlocks.watchdog.remove(t)\n", ""},
			{"core/tenure.go", "func (g *gate) drop(t *tenure) {\n\tt.locks.watchdog.remove(t)\n", "func (g *gate) drop(t *tenure) {\n"},
			{"core/watchdog.go", "if t.state != held && t.state != parked {\n\t\tt.gate.shard.Unlock()\n\t\treturn false", "if t.state == lost {\n\t\tt.gate.shard.Unlock()\n\t\treturn false"},
			{"core/watchdog.go", "if t.state == held || t.state == parked {\n\t\t\tops, live", "if t.state != lost {\n\t\t\tops, live"},
		},
		pkg: "./core", test: "TestNothingIsRenewedOnceItIsReleased", why: "renewals after the release began", tries: 1,
	},
	{
		name:  "a fair waiter passes those who stand in line",
		edits: []edit{{"core/lua/kinds.lua", "elseif o.kind == 'x' or byte(ticket) ~= byte(o.kind) then", "elseif byte(ticket) ~= byte(o.kind) then"}},
		pkg:   "./core", test: "TestKindsUnderRandomKills/line", why: "fair order: ", tries: 3,
	},
	{
		name: "the fallback has no gate",
		edits: []edit{
			{"core/enter.go", "clear := g.queue.len == 0 && !g.leading && g.mayAsk(a)", "clear := g.queue.len == 0 && !g.leading"},
			{"core/gate.go", "if !t.open && t.state != releasing {", "if false && t.state != releasing {"},
			{"fallback/ledger.go", "r := e.room(g.hold, g.root(), waiter, now); r != nil", "r := e.room(g.hold, g.root(), waiter, now); r != nil && false"},
		},
		pkg: "./internal/chaos", test: "TestChaos/fallback/refuse", why: "overlap in one process: ", tries: 10,
	},
}

func TestMutantsAreCaught(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			overlay := m.make(t)
			if !*run {
				return
			}
			for try := 1; ; try++ {
				said := m.try(t, overlay)
				if said != "" {
					t.Logf("caught at try %d: %s", try, said)
					return
				}
				if try == m.tries {
					t.Fatalf("%s %s passes", m.pkg, m.test)
				}
			}
		})
	}
}

// make lays the edited files over the module's, which stay as they are.
func (m *mutant) make(t *testing.T) (overlay string) {
	t.Helper()
	dir := t.TempDir()
	texts := map[string]string{}
	for _, e := range m.edits {
		path, err := filepath.Abs(filepath.Join(root, e.file))
		if err != nil {
			t.Fatal(err)
		}
		text, edited := texts[path]
		if !edited {
			bytes, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text = string(bytes)
		}
		if n := strings.Count(text, e.old); n != 1 {
			t.Fatalf("%s: %q stands there %d times, want once", e.file, e.old, n)
		}
		texts[path] = strings.Replace(text, e.old, e.new, 1)
	}
	var replace struct{ Replace map[string]string }
	replace.Replace = map[string]string{}
	for path, text := range texts {
		edited := filepath.Join(dir, fmt.Sprint(len(replace.Replace), filepath.Ext(path)))
		if err := os.WriteFile(edited, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace.Replace[path] = edited
	}
	text, err := json.Marshal(replace)
	if err != nil {
		t.Fatal(err)
	}
	overlay = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}

// try runs the test once, and returns what it says when it fails for the reason that it should, else "".
func (m *mutant) try(t *testing.T, overlay string) (said string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-count=1", "-run", m.test, m.pkg)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	text, why := string(out), regexp.MustCompile(m.why)
	switch {
	case err == nil:
		return ""
	case !strings.Contains(text, "--- FAIL"):
		t.Fatalf("%v:\n%s", err, text)
	case !why.MatchString(text):
		t.Fatalf("it fails, but does not say %q:\n%s", m.why, text)
	}
	for line := range strings.Lines(text) {
		if why.MatchString(line) {
			return strings.TrimSpace(line)
		}
	}
	return "it fails"
}
