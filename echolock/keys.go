package echolock

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/latchkit/latchkit/internal/admit/web"
)

// KeyFunc reads the key of a request. Requests with equal keys never run at once. An error, or an empty key, is answered
// 400; the error's text is not shown to the client. It is called from many goroutines.
//
// The functions of this package give "name:value". They take a value that is missing, empty, malformed or repeated for
// an error, since nobody can tell which one the handler will go by, and they escape braces in values, so that clients
// cannot choose a slot of a Redis Cluster. A function of your own gives its key as it is; wrap it in Named to have what
// the client sent escaped.
type KeyFunc func(c echo.Context) (string, error)

// Header reads a header.
func Header(name string) KeyFunc { return web.Keyed(name, onRequest(web.Header(name))) }

// Query reads a parameter of the URL's query.
func Query(name string) KeyFunc { return web.Keyed(name, onRequest(web.Query(name))) }

// Cookie reads a cookie.
func Cookie(name string) KeyFunc { return web.Keyed(name, onRequest(web.Cookie(name))) }

// Form reads a field of the body, urlencoded or multipart; never from the query. The body is given back whole. See
// WithMaxBody.
func Form(name string) KeyFunc { return web.Keyed(name, onRequest(web.Form(name))) }

// JSON reads a string or number of the JSON body. The path names members of objects with dots between them:
// "order.id"; a dot in a name is escaped by a backslash. The body is given back whole. See WithMaxBody.
//
// Members on the path that are given twice, or differ only in case, are refused as repeated. Equal numbers are one key
// however they are written.
func JSON(path string) KeyFunc { return web.Keyed(path, onRequest(web.JSON(path))) }

// BodyHash gives "body:" and the SHA-256 of the body in hexadecimal digits: the same submission twice. The body is given
// back whole. See WithMaxBody.
func BodyHash() KeyFunc { return web.Keyed("body", onRequest(web.BodyHash)) }

// Named gives the key another name: Named("order", Param("id")) is "order:42". With a key function from elsewhere its
// whole result is the value.
func Named(name string, key KeyFunc) KeyFunc { return web.Named(name, key) }

// Join makes one key of several, by core.JoinKey: unambiguous whatever the parts contain.
func Join(keys ...KeyFunc) KeyFunc { return web.Join(keys) }

func onRequest(value web.Value[*http.Request]) web.Value[echo.Context] {
	return func(c echo.Context) (string, error) { return value(c.Request()) }
}
