// Package echolock locks handlers of echo (v4) by a key of the request: two requests for one order never run at once, on
// any machine that shares the lock.
//
//	e.POST("/orders/:orderID/pay", pay, echolock.ByParam("orderID"))
//
// The key is the resource: "orderID:42" on every route that has the parameter, so a payment keeps a cancellation out.
// "id" is a poor name for it, since /users/:id has it too: say Named("order", Param("id")). WithPerRoute locks one
// operation instead.
//
// # Where it stands
//
// At a route, a group or the instance (Use); after recovery and authentication, so that a stranger cannot keep others
// out, and inside timeouts, so that a wait ends with them. A request that no route matches passes through. In Pre there
// are no parameters and no route yet, so only keys from elsewhere work there: stand after those that rewrite the path.
//
// # What the handler sees
//
// c.Request() carries the context of the lease, which Lease finds: it ends when the lock is lost, with cause
// core.ErrLost. After the handler the outer request is put back. The lock is freed when the handler returns or panics,
// not when the client hangs up.
//
// # What the client sees
//
// A request that is turned away returns an *echo.HTTPError with the *httplock.Refusal inside, and Retry-After set; an
// error handler of the service's own finds the usual code and message there, and gives them its format. Echo's default
// one answers with the problem (application/problem+json) of the types that package httplock lists.
//
// A handler that returns the cancellation of a lost lease, and has not answered, is answered 503 in the same way.
package echolock
