// Package grpclock locks gRPC calls by a key of the request: two calls that pay order 42 never run at once, on any of the
// service's machines. The second is refused, or waits if it may.
//
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(recovery, auth, grpclock.UnaryServerInterceptor(grpclock.Field("order.id"))),
//		grpc.ChainStreamInterceptor(recovery, auth, grpclock.StreamServerInterceptor(grpclock.Field("order.id"))),
//	)
//
// In a chain the interceptors stand after recovery and authentication (a panic passes through them with the lock
// released, and a caller without rights must not take locks) and inside whatever sets a deadline. They lock every
// method unless [WithMethods], [PerMethod] or a selector narrows that down. Health checks, reflection and channelz pass
// unlocked when they carry no key.
//
// # What the handler sees
//
// It runs under the lease's context: core.FromContext finds the lease in it, and it ends when the lease is lost. The
// lease is released when the handler returns or panics, and not before: a client that goes away leaves the key locked
// until its handler has noticed.
//
// # What the client sees
//
//	a call holds the key         ABORTED, RetryInfo, trailer grpc-retry-pushback-ms
//	one has completed, cooldown  ALREADY_EXISTS, RetryInfo with what is left of the cooldown
//	no usable key                INVALID_ARGUMENT
//	backend down or closed       UNAVAILABLE, RetryInfo
//	call ended while waiting     DEADLINE_EXCEEDED or CANCELLED
//	mistake in the set-up        INTERNAL, logged with slog
//	lease lost in the handler    ABORTED, RetryInfo
//
// The last stands in for the cancellation that the handler returns then; any other answer of the handler stands. An
// ErrorInfo of the domain [ErrorDomain] tells the rows apart: with [ReasonBusy] the handler has not run, with
// [ReasonLeaseLost] it has, perhaps in part. No status shows a key or an error of the backend. On the server the
// errors answer to errors.Is with those of core, so that interceptors further out can tell them apart.
//
// A client whose service config retries ABORTED waits as long as the trailer says before each attempt.
//
// # Streams
//
// A stream whose key is in its metadata ([Metadata], alone or in [Named], [Join] and [PerMethod]) is locked before the
// handler runs. Any other is locked when the handler has received the first message, before it sees it: RecvMsg returns
// the refusal, nothing is sent any more, and the client gets the refusal even if the handler swallows it. What the
// handler does before that first RecvMsg is not under the lock; one that never receives runs unlocked. (Generated code
// receives the one request of a server-streaming method by itself.) The stream's Context is the lease's from then on.
// One that was taken earlier ends too when the lease is lost, but re-entry works only in the later one.
//
// A stream that ends before its first message has no key and is refused. The lock is held from that message to the
// handler's return, whatever the messages after it name.
//
// # Calls from service to service
//
// A service that holds order 42 and calls another one, which locks order 42 as well, would wait for itself. With the same
// secret on both ends ([WithOwnerSecret], on the server's interceptors and on [UnaryClientInterceptor] and
// [StreamClientInterceptor] of the caller) the called service takes part in the hold: it runs at once, under the same
// fence, and the key is free again when both are done, in whatever order. Redis keeps the count. This holds along a chain
// of such calls, for what handlers lock by hand, and in methods that are not locked themselves.
//
// The owner travels in the metadata "latchkit-owner", as a token that is signed and good for 5 minutes or until the hold
// ends. The servers' clocks must agree much better than that. A token that is forged, expired or for another key changes
// nothing (the call is then one like any other, and meets a busy key) and is counted: see core.OwnerTokens. When the
// caller's hold has ended by the time the callee locks, the answer is UNAVAILABLE: the work is not protected any more.
// A lease that was carried is not handed on within its process, which costs its next waiter a trip. Permits of a limited
// lock, leases held without the store, and those of RedLock and Timestamp, which keep no count, are not carried.
package grpclock
