// Package fallback keeps locks going while Redis cannot serve: a circuit breaker in front of a core.Backend, and a
// lock in this process behind it.
//
//	locks, err := core.New(fallback.Wrap(core.Redis(rdb)))
//
// # What is promised
//
// Within one process there is never a second holder, whatever the breaker does: the engine's queue stands in front of
// both sides, and the Backend itself remembers what either side has granted, for several engines over one Backend.
//
// Between processes there is no exclusion while the breaker is open: each grants its own locks. That overlap is what
// this package trades for going on working. Such a lease says so: Degraded is true and Fence is 0. WithDrain keeps
// the first local grants back until the leases of other processes must have ended; it does not help when others
// still reach Redis. Work that must never overlap belongs behind a core.Backend without a fallback.
//
// # When it engages
//
// A trip to the backend is one sample, however many keys it carries, and each node has a breaker of its own. A trip
// fails when the backend could not serve within the engine's own limit (core.ErrUnavailable). Contention, a lease that
// is gone, a refusal for lack of rights and an unusable key are answers. A trip that its caller cut short, and one with
// a closed client, say nothing.
//
// Until the breaker opens, a failed call is core.ErrUnavailable. The call that opens it is served locally, as is
// everything after it, without touching a socket. When Settings.Timeout has passed, one write in the background, bounded
// in time, finds out whether the backend is back; callers stay local until it is.
//
// # Crossing over
//
// A lease knows who granted it. One that Redis granted lives on: a renewal that finds the breaker open makes it a local
// one (Degraded turns true) until it can be renewed in Redis again. It is lost when by then its key is gone or somebody
// else's. Its release goes to Redis, whatever the breaker says: when Redis does not answer in a moment the release says
// core.ErrUnavailable, and the engine deletes the key later.
//
// A lease that was granted locally stays so until its end. When the breaker closes it is written to Redis as well, to
// keep other processes out from then on; where one of them has taken the key meanwhile, both hold it, which is logged
// and told to WithOnDegraded.
package fallback
