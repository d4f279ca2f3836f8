package httplock

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/latchkit/latchkit/internal/admit"
	"github.com/latchkit/latchkit/internal/admit/web"
)

// Param reads a parameter of the path as http.ServeMux knows it: {name} or {name...} in the route's pattern. The value
// is the same however the path was escaped.
//
// A parameter that the pattern does not declare is answered 500 and logged, and so is a middleware that stands outside
// the router, where the path has no parameters yet. For other routers see URLParam.
func Param(name string) KeyFunc {
	web.RequireName("Param", name)
	what := paramText(name)
	return web.Keyed(name, func(r *http.Request) (string, error) {
		if value := r.PathValue(name); value != "" {
			return value, nil
		}
		return "", absent(r, name, what)
	})
}

// URLParam reads a parameter of the path through the router's own function, such as chi.URLParam:
//
//	httplock.By(httplock.URLParam("orderID", chi.URLParam))
//
// Get must give the value as chi does: as it stands in r.URL.RawPath where that is set, decoded otherwise. It is then
// decoded here, so that the value is the same however the path was escaped.
func URLParam(name string, get func(r *http.Request, name string) string) KeyFunc {
	web.RequireName("URLParam", name)
	web.RequireFunc("URLParam", get)
	what := paramText(name)
	return web.Keyed(name, func(r *http.Request) (string, error) {
		value := get(r, name)
		if value == "" {
			return "", absent(r, name, what)
		}
		if r.URL.RawPath == "" {
			return value, nil
		}
		decoded, err := url.PathUnescape(value)
		if err != nil {
			return "", admit.Malformed(what, err)
		}
		return decoded, nil
	})
}

func paramText(name string) string { return "path parameter " + strconv.Quote(name) }

// absent tells the client's mistake from the programmer's.
func absent(r *http.Request, name, what string) error {
	if declares(r.Pattern, name) {
		return admit.Missing(what)
	}
	return admit.NotDeclared(web.OfRoute(what, r.Pattern))
}

// declares tells whether a pattern of ServeMux or chi has a parameter of that name: {name}, {name...} or {name:regexp}.
func declares(pattern, name string) bool {
	for rest := pattern; ; {
		_, after, found := strings.Cut(rest, "{"+name)
		if !found {
			return false
		}
		if strings.HasPrefix(after, "}") || strings.HasPrefix(after, "...}") || strings.HasPrefix(after, ":") {
			return true
		}
		rest = after
	}
}

// splitPattern takes the method off a pattern of ServeMux.
func splitPattern(pattern string) (method, rest string) {
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		return pattern[:i], strings.TrimLeft(pattern[i:], " \t")
	}
	return "", pattern
}
