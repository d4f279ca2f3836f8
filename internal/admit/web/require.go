package web

import (
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/latchkit/latchkit/core"
)

// The checks of what no deployment could mean. They panic where the middleware is made, as a router does over a bad
// pattern: the program never starts to serve.

// RequireName wants a name that is not empty.
func RequireName(where, name string) {
	if name == "" {
		panic("latchkit: " + where + ": the name is empty")
	}
}

// RequireFunc wants a function (or any other value that can be nil) that is not nil.
func RequireFunc(where string, fn any) {
	if v := reflect.ValueOf(fn); !v.IsValid() || (v.Kind() == reflect.Func || v.Kind() == reflect.Pointer) && v.IsNil() {
		panic("latchkit: " + where + ": nil")
	}
}

// RequireDuration wants a duration of 0 to core.MaxTTL, the longest that a key can be kept.
func RequireDuration(where string, d time.Duration) {
	if d < 0 || d > core.MaxTTL {
		panic(fmt.Sprintf("latchkit: %s(%v): allowed is 0 to %v", where, d, core.MaxTTL))
	}
}

// RequireKeys wants at least one key function, and none that is nil.
func RequireKeys[F any](where string, keys []F) {
	if len(keys) == 0 {
		panic("latchkit: " + where + ": no keys")
	}
	for _, k := range keys {
		RequireFunc(where, k)
	}
}

// OfRoute says of which route what is missing, for the log: a program has many.
func OfRoute(what, route string) string {
	if route == "" {
		return what + " of a request that has been through no router"
	}
	return what + " of the route " + quoted(route)
}

func quoted(s string) string { return strconv.Quote(s) }
