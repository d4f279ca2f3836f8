package echolock

import (
	"net/http"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"
)

// routes knows whether a request has found a route. Echo does not say so: for "not found" it runs the middlewares too,
// and a group answers below its prefix by a catch-all route of its own.
type routes struct {
	known sync.Map // route → true: those that look like a catch-all of a group and are real
}

type route struct {
	router       *echo.Router
	method, path string
}

// match tells whether the request has found a route, or, before the routing (in Pre), whether it will.
func (rs *routes) match(c echo.Context) bool {
	path := c.Path()
	switch {
	case path == "":
		return willMatch(c)
	case strings.HasSuffix(path, "*"), c.Request().Method == http.MethodOptions,
		sameCode(c.Handler(), echo.MethodNotAllowedHandler):
		return rs.registered(c, path)
	default:
		return true
	}
}

// registered tells whether somebody has registered just this method and path.
func (rs *routes) registered(c echo.Context, path string) bool {
	r := route{routerOf(c), c.Request().Method, path}
	if _, ok := rs.known.Load(r); ok {
		return true
	}
	for _, candidate := range r.router.Routes() {
		if candidate.Method == r.method && candidate.Path == r.path {
			rs.known.Store(r, true)
			return true
		}
	}
	return false
}

// willMatch asks the router on behalf of another context.
func willMatch(c echo.Context) bool {
	scratch := c.Echo().AcquireContext()
	defer c.Echo().ReleaseContext(scratch)
	scratch.Reset(c.Request(), nil)
	routerOf(c).Find(c.Request().Method, echo.GetPath(c.Request()), scratch)
	found := scratch.Path() != ""
	scratch.Reset(nil, nil)
	return found
}

func routerOf(c echo.Context) *echo.Router {
	if r, ok := c.Echo().Routers()[c.Request().Host]; ok {
		return r
	}
	return c.Echo().Router()
}
