// Package ginlock locks gin handlers by a key of the request: two requests for one order never run at once, on any
// machine that shares the lock.
//
//	r.POST("/orders/:orderID/pay", ginlock.ByParam("orderID"), pay)
//
// The key is the resource: "orderID:42" on every route that has the parameter, so a payment keeps a cancellation out.
// "id" is a poor name for it, since /users/:id has it too: say Named("order", Param("id")). WithPerRoute locks one
// operation instead.
//
// # Where it stands
//
// At the engine, a group or a route; after recovery and authentication, so that a stranger cannot keep others out, and
// inside timeouts, so that a wait ends with them. A request that no route matches passes through.
//
// # What the handler sees
//
// c.Request carries the context of the lease, which Lease finds: it ends when the lock is lost, with cause core.ErrLost.
// After the handler the outer request is put back. The lock is freed when the handler returns or panics, not when the
// client hangs up.
//
// # What the client sees
//
// A request that is turned away is aborted. The client's own mistakes and a busy key (4xx) are answered here, as
// application/problem+json of the types that package httplock lists. Errors of the server (5xx) get their status and
// Retry-After, and go to c.Error as a *httplock.Refusal, so that an error middleware has them; what it writes is the only
// body, and without such a middleware there is none. WithErrorHandler takes all of it over.
//
// A handler that gives the cancellation of a lost lease to c.Error and writes nothing is answered 503 in the same way.
package ginlock
