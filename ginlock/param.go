package ginlock

import (
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/latchkit/latchkit/internal/admit"
	"github.com/latchkit/latchkit/internal/admit/web"
)

// Param reads a parameter of the path. The value is the same however the path was escaped, and whatever UseRawPath,
// UseEscapedPath and UnescapePathValues say: decoded once. It differs from c.Param where the engine leaves the value
// escaped, or takes a plus sign for a space.
//
// A parameter that the route does not declare is answered 500 and logged.
func Param(name string) KeyFunc {
	web.RequireName("Param", name)
	what := "path parameter " + strconv.Quote(name)
	return web.Keyed(name, func(c *gin.Context) (string, error) {
		value, declared := c.Params.Get(name)
		if !declared {
			return "", admit.NotDeclared(web.OfRoute(what, c.FullPath()))
		}
		if value == "" {
			return "", admit.Missing(what)
		}
		decoded, err := decodedOnce(c, name, value)
		if err != nil {
			return "", admit.Malformed(what, err)
		}
		return decoded, nil
	})
}

// decodedOnce returns the value of a parameter, decoded once from the path. What gin gives depends on the engine, which
// a handler cannot ask: the value from the decoded path, the value from the escaped path as it is, or that passed through
// url.QueryUnescape, which turns a plus sign into a space. The three agree unless there is a percent sign or a space in
// the value. Then it is told by the path from which the values can come.
func decodedOnce(c *gin.Context, name, value string) (string, error) {
	if !strings.ContainsAny(value, "% ") {
		return value, nil
	}
	route, u := c.FullPath(), c.Request.URL
	for _, form := range []func(string) string{asIs, withoutExtraSlashes} {
		if routedBy(route, form(u.Path), c.Params) {
			return value, nil
		}
		if escaped, ok := segment(route, form(u.EscapedPath()), name); ok {
			return url.PathUnescape(escaped)
		}
	}
	return value, nil // the path was rewritten after it was matched
}

func asIs(p string) string { return p }

// withoutExtraSlashes is what an engine with RemoveExtraSlash matches.
func withoutExtraSlashes(p string) string {
	clean := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}

// routedBy tells whether the params are exactly what the route finds in the path.
func routedBy(route, path string, params gin.Params) bool {
	i := 0
	return match(route, path, func(_, value string) bool {
		i++
		return i <= len(params) && params[i-1].Value == value
	})
}

// segment returns what the route finds in the path for a parameter.
func segment(route, path, name string) (found string, ok bool) {
	matched := match(route, path, func(n, value string) bool {
		if n == name {
			found, ok = value, true
		}
		return true
	})
	return found, ok && matched
}

// match walks along a route of gin (:name up to the next slash, *name to the end with its slash) and a path that it may
// match, and shows visit each parameter until that says no.
func match(route, path string, visit func(name, value string) bool) bool {
	for route != "" {
		switch {
		case route[0] == ':':
			var name, value string
			name, route = upToSlash(route[1:])
			value, path = upToSlash(path)
			if !visit(name, value) {
				return false
			}
		case strings.HasPrefix(route, "/*"):
			return strings.HasPrefix(path, "/") && visit(route[2:], path)
		default:
			if strings.HasPrefix(route, `\:`) {
				route = route[1:]
			}
			if path == "" || path[0] != route[0] {
				return false
			}
			route, path = route[1:], path[1:]
		}
	}
	return path == ""
}

func upToSlash(s string) (before, after string) {
	if i := strings.IndexByte(s, '/'); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}
