// Package otellock shows locks in OpenTelemetry: its Tracer, given to core.WithTracer, makes spans and metrics of what
// the engine does. It needs the API packages only; bring your own SDK.
//
// # Spans
//
// All are of kind INTERNAL, and children of the caller's span, but for lock.renew, which is a root.
//
//	lock.acquire   from the call of Acquire to its outcome; commands to Redis are its children
//	lock.release   a Release that ends a hold; linked to its lock.acquire
//	lock.renew     a renewal that failed, linked to its lock.acquire
//
// At the start, where samplers see them: latchkit.backend, latchkit.kind, latchkit.name (see WithName), latchkit.ttl
// and latchkit.fair where true (acquire), latchkit.link = acquire on the link (release, renew), latchkit.key (only WithKeyAttribute).
// At the end of a renew latchkit.ttl and latchkit.slack, what was left of the lease; of a release latchkit.handoff, where
// true. At the end of an acquire:
//
//	latchkit.outcome         acquired, contended, timeout, canceled or error
//	latchkit.attempts        trips to the backend, where it took more than one
//	latchkit.waited          how long it took in all, and of that, where it is more than 0:
//	latchkit.waited_gate     behind others of this process
//	latchkit.waited_backend  in trips to the backend
//	latchkit.waited_holder   for a holder elsewhere
//	latchkit.max_wait        how long it was allowed to wait; absent where not at all, and for core.Forever
//	latchkit.fence           when acquired; 0 where degraded
//	latchkit.degraded, latchkit.handoff, latchkit.reentry, latchkit.completed   where true
//	error.type               a word of ours, such as unavailable or lost
//
// The events latchkit.wait.start and latchkit.wait.end enclose the wait for another holder. The holder that kept an
// acquire out is linked, with latchkit.link = holder, where it is known: in this process, and elsewhere under
// WithHolderLink.
//
// A span's status is Error when the backend failed or the lock was lost. Contention, a fallback and a caller that
// gives up are no errors. Texts of errors are not exported, for they may quote keys; durations are in seconds.
//
// # Metrics
//
//	latchkit.acquire.duration      s   how long Acquire took, by latchkit.outcome
//	latchkit.hold.duration         s   how long locks were held, by latchkit.end: released or lost
//	latchkit.hold.ttl_ratio        1   the same, as a multiple of the TTL
//	latchkit.renewal.slack         s   what was left of a lease when it was renewed
//	latchkit.renewal.slack_ratio   1   the same, as a part of the TTL
//	latchkit.contentions               acquires that met another holder
//	latchkit.lost                      locks lost before their release, by latchkit.reason
//	latchkit.renewal.failures          renewals that failed, by error.type
//	latchkit.held                      locks held now
//	latchkit.waiting                   acquires waiting now
//	latchkit.fallback.grants           locks granted without the backend, by latchkit.reason
//	latchkit.breaker.state             1 for the state a breaker is in, else 0, by latchkit.state
//	latchkit.breaker.transitions       its changes, by latchkit.from and latchkit.to
//	latchkit.clock.offset          s   how far a RedLock node's clock is ahead of ours
//
// The first ten have latchkit.backend, latchkit.kind and latchkit.name; the fallback's grants the backend; the rest the
// backend and the node. The key is in none: ten thousand keys are one series. Counters are there as 0 from the start.
package otellock
