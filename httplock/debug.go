package httplock

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/admit/web"
)

// DebugHandler shows what locks does in this process: the leases held, which keys are waited for, the last losses, and
// the breakers of a fallback. It asks neither Redis nor any other process.
//
//	mux.Handle("GET /debug/locks", admin(httplock.DebugHandler(locks)))
//
// A browser gets a page that stays current by itself, or a table to be refreshed where there is no JavaScript, of up to 500
// rows each. A request that accepts application/json and not HTML gets all of it as JSON, with durations in seconds. "?q=order" leaves only what has the
// word in its key or label.
//
// It does not ask who is there: mount it behind what does, for keys are often personal data (WithDebugKeys can redact
// them) and labels name machines. It shows no owner, changes nothing, and may be used concurrently. It panics when locks
// is nil.
func DebugHandler(locks *core.Locks, opts ...DebugOption) http.Handler {
	web.RequireFunc("httplock.DebugHandler", locks)
	h := &debugHandler{locks: locks, show: func(key string) string { return key }}
	for _, o := range opts {
		o(h)
	}
	return h
}

// DebugOption sets what a DebugHandler shows.
type DebugOption func(*debugHandler)

// WithDebugKeys shows what show makes of each key instead of the key: shortened, say, or hashed.
func WithDebugKeys(show func(key string) string) DebugOption {
	web.RequireFunc("WithDebugKeys", show)
	return func(h *debugHandler) { h.show = show }
}

type debugHandler struct {
	locks *core.Locks
	show  func(key string) string
}

func (h *debugHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Vary", "Accept")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	view := h.look(r.URL.Query().Get("q"))
	var err error
	if wantsJSON(r) {
		header.Set("Content-Type", "application/json")
		err = json.NewEncoder(w).Encode(view)
	} else {
		header.Set("Content-Type", "text/html; charset=utf-8")
		header.Set("Content-Security-Policy", debugPolicy())
		err = debugPage().Execute(w, view)
	}
	if err != nil && r.Context().Err() == nil {
		slog.DebugContext(r.Context(), "latchkit: the page of locks was not sent", "error", err)
	}
}

// wantsJSON tells whether r names JSON, and not HTML, which is a browser's.
func wantsJSON(r *http.Request) bool {
	accept := strings.ToLower(strings.Join(r.Header.Values("Accept"), ","))
	return strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
}
