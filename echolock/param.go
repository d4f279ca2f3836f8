package echolock

import (
	"net/url"
	"slices"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/latchkit/latchkit/internal/admit"
	"github.com/latchkit/latchkit/internal/admit/web"
)

// Param reads a parameter of the path; "*" is the rest of a path. The value is the same however the path was escaped:
// decoded once. It differs from c.Param where echo leaves the value escaped.
//
// A parameter that the route does not declare is answered 500 and logged, and so is any parameter in Pre.
func Param(name string) KeyFunc {
	web.RequireName("Param", name)
	what := "path parameter " + strconv.Quote(name)
	return web.Keyed(name, func(c echo.Context) (string, error) {
		value := c.Param(name)
		if value == "" {
			if slices.Contains(c.ParamNames(), name) {
				return "", admit.Missing(what)
			}
			return "", admit.NotDeclared(web.OfRoute(what, c.Path()))
		}
		if c.Request().URL.RawPath == "" { // echo matches the decoded path only where there is no other
			return value, nil
		}
		decoded, err := url.PathUnescape(value)
		if err != nil {
			return "", admit.Malformed(what, err)
		}
		return decoded, nil
	})
}
