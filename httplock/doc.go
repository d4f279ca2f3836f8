// Package httplock locks handlers of net/http by a key of the request: two requests for one order never run at once, on
// any machine that shares the lock.
//
//	mux.Handle("POST /orders/{orderID}/pay", httplock.ByParam("orderID")(pay))
//
// The key is the resource: "orderID:42" on every route that has the parameter, so a payment keeps a cancellation out.
// "id" is a poor name for it, since /users/{id} has it too: say Named("order", Param("id")). WithPerRoute locks one
// operation instead.
//
// # Where it stands
//
// Inside the router, around the handler of a route, for only there the route's parameters are known. After recovery and
// authentication, so that a stranger cannot keep others out, and inside timeouts, so that a wait ends with them.
//
// # What the handler sees
//
// It runs under the context of the lease, found by core.FromContext: the context ends when the lock is lost, with cause
// core.ErrLost. Work that must stop then passes the context on; a write that must not come late carries the lease's
// Fence. The lock is freed when the handler returns or panics, not when the client hangs up. An answer is never
// rewritten, and a handler that has lost its lock gives the answer itself.
//
// # What the client sees
//
// A request that is turned away gets an answer of type application/problem+json (RFC 9457), unless WithErrorHandler
// says otherwise. The sections below are the types; a client may tell them apart by their URL.
//
// # Busy
//
// Status 409: another request for this resource is being handled. Retry-After says when to come again.
//
// # Completed
//
// Status 409: a request for this resource has just succeeded, and WithCooldown keeps others out until Retry-After has
// passed.
//
// # Bad key
//
// Status 400: what the key is read from is missing, empty, malformed or given more than once.
//
// # Too large
//
// Status 413: the body in which the key stands is over the cap of WithMaxBody.
//
// # Unavailable
//
// Status 503 with Retry-After: the lock's backend is away or closed, too many wait, or the server's own deadline ended
// the wait.
//
// # Internal
//
// Status 500, and logged: a mistake in the program or its set-up, such as no Locker, or a parameter that the route does
// not declare.
//
// A client that goes away while it waits leaves a bare 499 for the access log. So that the server notices over HTTP/1 too,
// a body of known length up to 64 KiB is read before the lock is asked for.
package httplock
