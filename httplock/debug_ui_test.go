package httplock_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/httplock"
	"github.com/latchkit/latchkit/internal/browsertest"
)

var views = map[string]browsertest.View{
	"desktop-light": {Width: 1280, Height: 900},
	"desktop-dark":  {Width: 1280, Height: 900, Dark: true},
	"phone-light":   {Width: 390, Height: 844, Phone: true},
	"phone-dark":    {Width: 390, Height: 844, Phone: true, Dark: true},
}

// busyLocks is an engine in which there is something of everything to see.
func busyLocks(t *testing.T) *core.Locks {
	locks := debugLocks(t, newAway())
	first := taken(t, locks, "order:42")
	if _, err := locks.Acquire(first.Context(), "order:42"); err != nil {
		t.Fatal(err)
	}
	taken(t, locks, "sku:4711", core.WithShared(), core.WithLabel("stock-7c9f/1"))
	taken(t, locks, "report:daily", core.WithoutRenewal(), core.WithTTL(time.Hour), core.WithLabel("scheduler-0/17"))
	taken(t, locks, "mailer", core.WithLimit(3), core.WithLabel("mailer-55d8/1"))
	wait(t, locks, "order:42", 3)
	wait(t, locks, "report:daily", 1)
	for i := range 3 {
		key := fmt.Sprintf("invoice:%d", 7000+i)
		taken(t, locks, key)
		if err := locks.ForceRelease(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	return locks
}

func serve(t *testing.T, h http.Handler) string {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL + "/debug/locks"
}

// The pictures are for a person to look at: go test -artifacts keeps them. What they must not show is checked.
func TestDebugInABrowser(t *testing.T) {
	b := browsertest.Start(t)
	many, nasty := debugLocks(t, core.Local()), debugLocks(t, core.Local())
	for i := range 60 {
		taken(t, many, fmt.Sprintf("order:%d", 1000+i))
	}
	for _, key := range hostile {
		taken(t, nasty, key, core.WithLabel(key[:min(len(key), 128)]))
	}
	pages := map[string]string{
		"busy": serve(t, httplock.DebugHandler(busyLocks(t))), "empty": serve(t, httplock.DebugHandler(debugLocks(t, core.Local()))),
		"many": serve(t, httplock.DebugHandler(many)), "hostile": serve(t, httplock.DebugHandler(nasty)),
	}
	for name, url := range pages {
		for look, view := range views {
			p := b.Open(t, url, view)
			p.Want("document.querySelector('#live').className.endsWith(' on')")
			p.Screenshot(filepath.Join(t.ArtifactDir(), name+"-"+look+".png"))
			if wide := p.Eval("document.documentElement.scrollWidth - innerWidth"); wide.(float64) > 0 {
				t.Errorf("%s, %s: it scrolls sideways, by %v pixels", name, look, wide)
			}
			if got := p.Eval("document.scripts.length + document.images.length + document.querySelectorAll('[onmouseover]').length"); got != 1.0 {
				t.Errorf("%s, %s: %v elements that run or fetch something, want our own script", name, look, got)
			}
			if bad := p.Complaints(); len(bad) > 0 {
				t.Errorf("%s, %s: the browser complains: %s", name, look, strings.Join(bad, "\n"))
			}
		}
	}
}

func TestDebugStaysCurrentInABrowser(t *testing.T) {
	b := browsertest.Start(t)
	locks := debugLocks(t, core.Local())
	h := httplock.DebugHandler(locks)
	var down atomic.Bool
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		h.ServeHTTP(w, r)
	}))
	p := b.Open(t, url, views["desktop-light"])
	p.Want("document.querySelector('main').innerText.includes('No lease is held here')")
	p.Eval("window.mark = 1")
	lease := taken(t, locks, "order:42")
	p.Want("document.querySelector('.key')?.innerText === 'order:42'")
	// While somebody has marked a key in order to copy it, it stays.
	p.Eval("getSelection().selectAllChildren(document.querySelector('.key'))")
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Want("document.querySelector('[role=status]').innerText.startsWith('Paused')")
	if got := p.Eval("getSelection().toString()"); got != "order:42" {
		t.Errorf("%q is marked", got)
	}
	p.Eval("getSelection().removeAllRanges()")
	p.Want("document.querySelector('.key') === null")
	if bad := p.Complaints(); len(bad) > 0 {
		t.Errorf("the browser complains: %v", bad)
	}
	// The server goes away, and comes back.
	down.Store(true)
	p.Want("document.querySelector('[role=status]').innerText.startsWith('No answer since')")
	p.Screenshot(filepath.Join(t.ArtifactDir(), "away.png"))
	down.Store(false)
	p.Want("document.querySelector('[role=status]').innerText === 'Live'")
	if p.Eval("window.mark") != 1.0 {
		t.Error("the page was loaded anew")
	}
}

func TestDebugWithoutScriptsInABrowser(t *testing.T) {
	b := browsertest.Start(t)
	p := b.Open(t, serve(t, httplock.DebugHandler(busyLocks(t))), browsertest.View{Width: 1280, Height: 900, NoScript: true})
	p.Screenshot(filepath.Join(t.ArtifactDir(), "noscript.png"))
	keys := fmt.Sprint(p.Eval("[...document.querySelectorAll('section:first-of-type .key code')].map(e => e.innerText).sort().join(' ')"))
	if want := []string{"mailer", "order:42", "report:daily", "sku:4711"}; !slices.Equal(strings.Fields(keys), want) {
		t.Errorf("keys %s", keys)
	}
	if p.Eval("getComputedStyle(document.querySelector('#live a')).display") == "none" {
		t.Error("there is no way to refresh")
	}
	if p.Eval("document.querySelector('form').method") != "get" {
		t.Error("the filter is no link")
	}
}
