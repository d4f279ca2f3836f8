// Package core is latchkit's lock engine: one lock per key, held by one caller on all machines that share a Redis.
//
//	locks, err := core.New(core.Redis(rdb), core.WithPrefix("shop:"))
//	lease, err := locks.Acquire(ctx, "order:42", core.WithWait(2*time.Second))
//	defer lease.Release(ctx)
//	work(lease.Context(), lease.Fence())
//
// A [Backend] tries, extends and releases; the engine, [Locks], does the rest once for all backends: it queues the
// callers of this process, waits, renews, passes the lock on, retries and undoes. Backends are [Redis] (one server,
// Sentinel or Cluster), [RedLock] over independent servers, [Local] in this process, and [Timestamp], an older protocol.
//
// # Ways to lock
//
// [Locks.Acquire] takes one key, and fails fast unless [WithWait] lets it wait. The lease lives for 30 s unless
// [WithTTL] says otherwise, and is renewed at a third of that for as long as it is held. [Do] runs a function under a
// lock, [AcquireAll] takes several keys or none, and [Lead] has one of many processes at work. [WithShared] lets readers
// in together, [WithLimit] up to n holders, and [WithFair] serves in order of arrival. An Acquire under the context of a
// lease re-enters it; [Lease.Export] carries that to another process. [Locks.Inspect], [Locks.Leases] and
// [Locks.ForceRelease] are for those who operate a service.
//
// # What is promised
//
// While a lease lives, no other lease on its key does, whoever asks and from wherever, as long as the backend keeps its
// memory and clocks run at about the same speed (1 % and 2 ms are allowed for). Only the owner releases or extends. A
// lease ends by this process's own clock at the latest when its TTL has passed since before the command was sent; its
// context ends then, whatever Redis answers or does not. What has ended is never revived.
//
// Every lease has a fencing token greater than all earlier ones on its key, also when the server has lost its memory, as
// far as its clock has not gone back; one that a fallback gives without its store has none.
//
// A trip to the backend takes 2 s at most. Acquire answers within its wait and two of them, mostly one. Release answers
// within 2 s, also under a context that is dead.
//
// # What is not
//
// A process that stands still (a pause of the garbage collector or of the machine) learns that its lease has ended only
// when it runs again, and may have a write on its way by then. No lock can prevent that; a store that refuses old
// fencing tokens can. A single Redis that fails over to a replica which has not got the lock yet lets a second holder
// in; [RedLock] and [WithReplicas] narrow that, fences catch it.
//
// # Errors
//
// Sentinels, to be asked for with errors.Is: [ErrNotAcquired] is a holder's, [ErrUnavailable] is Redis's, and they are
// never confused: a lock that cannot be had because Redis is down is not "busy". [ErrLost] says that a lease ended under
// its holder. A [NotAcquiredError] also tells when to come again. What is out of range is an [ErrInvalidOption] that
// names what is allowed.
package core
