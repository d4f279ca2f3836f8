package echolock_test

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/latchkit/latchkit/echolock"
	"github.com/latchkit/latchkit/internal/adaptertest"
)

func BenchmarkOverhead(b *testing.B) {
	service := func(middlewares ...echo.MiddlewareFunc) http.Handler {
		e := echo.New()
		e.POST("/orders/:orderID/pay", func(c echo.Context) error { return c.NoContent(http.StatusCreated) }, middlewares...)
		return e
	}
	adaptertest.BenchmarkOverhead(b, service(), func(o adaptertest.Options) http.Handler {
		return service(echolock.ByParam("orderID", options.Make(adaptertest.HTTPOptions{Options: o})...))
	})
}
