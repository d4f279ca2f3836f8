package echolock

import (
	"reflect"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/latchkit/latchkit/httplock"
)

// httpError is the refusal as echo's own kind of error. Error handlers of the service's own expect a text for a message,
// and choose the format. Echo's default one writes any message as JSON, so it gets the problem itself, and its media
// type, which it does not overwrite.
func httpError(c echo.Context, refusal *httplock.Refusal) *echo.HTTPError {
	err := &echo.HTTPError{Code: refusal.Status, Message: refusal.Title, Internal: refusal}
	refusal.Advise(c.Response().Header())
	switch {
	case refusal.Status == httplock.StatusClientGone:
		_ = c.NoContent(refusal.Status) // nobody reads it
	case usesDefaultHandler(c.Echo()):
		c.Response().Header().Set(echo.HeaderContentType, "application/problem+json")
		err.Message = refusal
	}
	return err
}

func usesDefaultHandler(e *echo.Echo) bool {
	return sameCode(e.HTTPErrorHandler, defaultHandler())
}

// defaultHandler is what a new instance has. It is bound to that instance, but its code is everybody's.
var defaultHandler = sync.OnceValue(func() echo.HTTPErrorHandler { return echo.New().HTTPErrorHandler })

// sameCode tells whether two functions have the same code. Functions cannot be compared otherwise.
func sameCode(a, b any) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}
