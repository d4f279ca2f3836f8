package httplock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/httplock"
)

// page asks a DebugHandler as a client that accepts the given type.
func page(t *testing.T, h http.Handler, target, accept string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: status %d: %s", target, w.Code, w.Body)
	}
	return w
}

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

func debugLocks(t *testing.T, b core.Backend) *core.Locks {
	t.Helper()
	locks, err := core.New(b, core.WithPrefix("p:"), core.WithLabel("web-1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = locks.Close(ctx) // frees what the test holds
	})
	return locks
}

func taken(t *testing.T, locks *core.Locks, key string, opts ...core.Option) *core.Lease {
	t.Helper()
	lease, err := locks.Acquire(t.Context(), key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// wait makes n callers wait for key.
func wait(t *testing.T, locks *core.Locks, key string, n int) {
	t.Helper()
	for range n {
		go locks.Acquire(t.Context(), key, core.WithWait(core.Forever))
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		for _, w := range locks.Waiting() {
			if w.Key == key && w.Count == n {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d should wait for %s: %+v", n, key, locks.Waiting())
		}
	}
}

// away is a Backend with breakers.
type away struct {
	core.Backend
	core.Inspector
}

func newAway() core.Backend {
	b := core.Local()
	return away{b, b.(core.Inspector)}
}

func (away) Breakers() []core.Breaker {
	return []core.Breaker{
		{Node: "b:1", State: "open", Since: time.Now().Add(-time.Minute), Err: errors.New("dial <b>: refused")},
		{Node: "a:1", State: "closed"},
	}
}

type debugJSON struct {
	Process string
	Leases  []struct {
		Key, Kind, Label  string
		Since             time.Time
		Age, Remaining    float64
		Fence             int64
		Count             int
		Renewed, Degraded bool
	}
	Waiting []struct {
		Key   string
		Count int
		Age   float64
	}
	Losses []struct {
		Key, Reason, Label string
		At                 time.Time
		Held               float64
	}
	Breakers []struct {
		Node, State, Error string
		Since              *time.Time
	}
}

func askJSON(t *testing.T, h http.Handler, target string) (all debugJSON) {
	t.Helper()
	w := page(t, h, target, "application/json")
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("type %q", got)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &all); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	return all
}

func TestDebugJSON(t *testing.T) {
	locks := debugLocks(t, core.Local())
	if body := page(t, httplock.DebugHandler(locks), "/", "application/json").Body.String(); strings.Contains(body, "null") {
		t.Errorf("an empty list is null: %s", body)
	}
	lease := taken(t, locks, "order:42", core.WithTTL(10*time.Second))
	taken(t, locks, "report", core.WithShared(), core.WithoutRenewal(), core.WithLabel("nightly"))
	if _, err := locks.Acquire(lease.Context(), "order:42"); err != nil {
		t.Fatal(err)
	}
	wait(t, locks, "order:42", 3)
	taken(t, locks, "gone")
	if err := locks.ForceRelease(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}

	h := httplock.DebugHandler(locks)
	all := askJSON(t, h, "/")
	if len(all.Leases) != 2 || len(all.Waiting) != 1 || len(all.Losses) != 1 || len(all.Breakers) != 0 {
		t.Fatalf("%+v", all)
	}
	if l := all.Leases[0]; l.Key != "order:42" || l.Kind != "exclusive" || l.Label != "web-1" || l.Count != 2 || !l.Renewed ||
		l.Degraded || l.Fence != lease.Fence() || l.Remaining <= 0 || l.Remaining > 10 || l.Age < 0 || l.Since.IsZero() {
		t.Errorf("%+v", l)
	}
	if l := all.Leases[1]; l.Key != "report" || l.Kind != "shared" || l.Label != "nightly" || l.Renewed {
		t.Errorf("%+v", l)
	}
	if w := all.Waiting[0]; w.Key != "order:42" || w.Count != 3 {
		t.Errorf("%+v", w)
	}
	if l := all.Losses[0]; l.Key != "gone" || l.Reason != "forced" || l.At.IsZero() || l.Label != "web-1" {
		t.Errorf("%+v", l)
	}
	if all = askJSON(t, h, "/?q=night"); len(all.Leases) != 1 || all.Leases[0].Key != "report" || len(all.Waiting)+len(all.Losses) != 0 {
		t.Errorf("filtered: %+v", all)
	}
}

func TestDebugPage(t *testing.T) {
	locks := debugLocks(t, newAway())
	taken(t, locks, "order:42")
	wait(t, locks, "order:42", 2)
	w := page(t, httplock.DebugHandler(locks), "/debug/locks", browser)
	body := w.Body.String()
	for _, want := range []string{
		"<bdi>order:42</bdi>", "web-1", "exclusive", `<dt>Held</dt><dd>1</dd>`, `<dt>Waiting</dt><dd>2</dd>`,
		`<dt>Breaker</dt><dd>open</dd>`, "a:1", "b:1", "dial &lt;b&gt;: refused", `<a href="">Refresh</a>`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in %s", want, body)
		}
	}
	if strings.Index(body, "a:1") > strings.Index(body, "b:1") {
		t.Error("the nodes are in no order")
	}
	for name, want := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store", "Vary": "Accept",
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if policy := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q", policy)
	}
	// Nothing comes from elsewhere: there is no source, and no link but the one to the page itself.
	for _, outside := range []string{"src=", "url(", "@import", "//cdn", "http:", "https:"} {
		if strings.Contains(body, outside) {
			t.Errorf("%q in %s", outside, body)
		}
	}
	if body = page(t, httplock.DebugHandler(debugLocks(t, core.Local())), "/", browser).Body.String(); !strings.Contains(body, "No lease is held here") ||
		strings.Contains(body, "Breaker") {
		t.Errorf("empty: %s", body)
	}
}

var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, "{{.}}", "a\nb\tc", "\xff\xfe\x00", "\u202egnp.exe", "שלום:42",
	`' onmouseover='alert(1)`, "javascript:alert(1)", strings.Repeat("long/", 400), "</code></td></table>",
}

func TestDebugEscapes(t *testing.T) {
	locks := debugLocks(t, core.Local())
	for _, key := range hostile {
		taken(t, locks, key, core.WithLabel(key[:min(len(key), 128)]))
	}
	h := httplock.DebugHandler(locks)
	body := page(t, h, "/?q=%22%3E%3Cscript%3E", browser).Body.String() + page(t, h, "/", browser).Body.String()
	for _, raw := range []string{"<script>alert", "<img", "' onmouseover", "\xff", "\x00", "\u202e", "</code></td></table>", `"><script>`} {
		if strings.Contains(body, raw) {
			t.Errorf("%q stands on the page", raw)
		}
	}
	for _, shown := range []string{"&lt;script&gt;alert(1)", `a\nb\tc`, `\xff\xfe\x00`, `\u202egnp.exe`, "שלום:42", "long/lo…"} {
		if !strings.Contains(body, shown) {
			t.Errorf("no %q", shown)
		}
	}
	if all := askJSON(t, h, "/"); len(all.Leases) != len(hostile) || all.Leases[0].Key != hostile[0] {
		t.Errorf("%+v", all.Leases)
	}
	if n := len(body); n > 200_000 {
		t.Errorf("%d bytes", n)
	}
}

func TestDebugRedacts(t *testing.T) {
	locks := debugLocks(t, core.Local())
	taken(t, locks, "patient:smith")
	wait(t, locks, "patient:smith", 1)
	taken(t, locks, "patient:smithson")
	if err := locks.ForceRelease(t.Context(), "patient:smithson"); err != nil {
		t.Fatal(err)
	}
	h := httplock.DebugHandler(locks, httplock.WithDebugKeys(func(key string) string {
		class, _, _ := strings.Cut(key, ":")
		return class + ":…"
	}))
	for _, accept := range []string{browser, "application/json"} {
		body := page(t, h, "/", accept).Body.String()
		if strings.Contains(body, "smith") || strings.Count(body, "patient:…") < 3 {
			t.Errorf("%s: %s", accept, body)
		}
	}
	if all := askJSON(t, h, "/?q=smith"); len(all.Leases)+len(all.Waiting) != 0 {
		t.Error("the filter tells what is redacted")
	}
}

func TestDebugManyRows(t *testing.T) {
	locks := debugLocks(t, core.Local())
	for i := range 600 {
		taken(t, locks, fmt.Sprintf("order:%d", i))
	}
	h := httplock.DebugHandler(locks)
	body := page(t, h, "/", browser).Body.String()
	if n := strings.Count(body, `class="key"`); n != 500 || !strings.Contains(body, "and 100 more") || !strings.Contains(body, "<dd>600</dd>") {
		t.Errorf("%d rows", n)
	}
	if all := askJSON(t, h, "/"); len(all.Leases) != 600 {
		t.Errorf("%d leases as JSON", len(all.Leases))
	}
}

func TestDebugOnlyReads(t *testing.T) {
	h := httplock.DebugHandler(debugLocks(t, core.Local()))
	for method, want := range map[string]int{"GET": 200, "HEAD": 200, "POST": 405, "DELETE": 405} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, "/", nil))
		if w.Code != want || want == 405 && w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("no locks, and no panic")
		}
	}()
	httplock.DebugHandler(nil)
}
