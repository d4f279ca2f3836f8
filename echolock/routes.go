package echolock

import (
	"maps"
	"net/http"
	"sync/atomic"

	"github.com/labstack/echo/v4"
)

// routes knows whether a request has found a route. Echo does not say so: for "not found" and "method not allowed" it
// runs the middlewares too, and a group answers at and below its prefix by routes of its own.
type routes struct {
	// known are the routes that were looked up and are real. What is not may become so, and is looked up each time.
	known atomic.Pointer[map[route]bool]
}

type route struct {
	router       *echo.Router
	method, path string
}

// match tells whether the request has found a route, or, before the routing (in Pre), whether it will.
func (rs *routes) match(c echo.Context) bool {
	if c.Path() == "" {
		return willMatch(c)
	}
	r := route{routerOf(c), c.Request().Method, c.Path()}
	if known := rs.known.Load(); known != nil && (*known)[r] {
		return true
	}
	found := r.found(c)
	if found {
		rs.remember(r)
	}
	return found
}

// found looks the route up. One that is in no list was added past echo, by its Router: it is real.
func (r route) found(c echo.Context) bool {
	substitute := r.method == http.MethodOptions || sameCode(c.Handler(), echo.MethodNotAllowedHandler)
	for _, candidate := range r.router.Routes() {
		switch {
		case candidate.Path != r.path:
		case candidate.Method == r.method:
			return true
		case candidate.Method == echo.RouteNotFound:
			substitute = true
		}
	}
	return !substitute
}

func (rs *routes) remember(r route) {
	for {
		before := rs.known.Load()
		after := map[route]bool{}
		if before != nil {
			after = maps.Clone(*before)
		}
		after[r] = true
		if rs.known.CompareAndSwap(before, &after) {
			return
		}
	}
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
