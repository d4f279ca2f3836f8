package web

import (
	"net/http"

	"github.com/latchkit/latchkit/internal/admit"
)

// Settings are what the options of every HTTP adapter set.
type Settings struct {
	admit.Guard
	// PerRoute makes the method and the route's pattern part of the key.
	PerRoute bool
	// MaxBody is how much of a body is read for its key.
	MaxBody int64
}

// Defaults are the settings before any option.
func Defaults() Settings { return Settings{MaxBody: DefaultMaxBody} }

// RequireMaxBody wants a cap of at least a byte.
func RequireMaxBody(n int64) {
	if n < 1 {
		panic("latchkit: WithMaxBody: allowed is 1 byte or more")
	}
}

// RouteKey is the key of one operation on a resource: "METHOD pattern key". Braces, which in the patterns of net/http
// stand around names, are escaped: in Redis Cluster all keys of a route would meet in one slot.
func RouteKey(method, pattern, key string) string {
	return method + " " + admit.Escape(pattern) + " " + key
}

// Succeeded tells whether a final status means success: 2xx.
func Succeeded(status int) bool {
	return status >= http.StatusOK && status < http.StatusMultipleChoices
}
