package core

import (
	"context"
	"time"
)

// Backend is the seam below the engine: it tries once, extends, releases and refills, atomically and for the
// owner only. Waiting, re-entry, renewal, hand-off between goroutines, retries and tracing live in the engine,
// so that every Backend has them and behaves alike. Implement it to bring locks to another store; the suite in
// core/locktest says whether an implementation keeps the contract.
//
// Methods are called concurrently.
type Backend interface {
	// Name is a short word for messages, spans and metrics, such as "redis".
	Name() string
	// Route names the node that serves key, prefix included. Operations meet in one batch only when their routes are equal, so
	// that a node that hangs holds up its own keys and no others. A Backend with one node returns "".
	Route(key string) string
	// Do carries out every operation of the batch once, in order for equal keys, and writes the replies into
	// it. It returns when ctx ends at the latest, and leaves an error in each operation whose outcome it does
	// not know. It does not retry: the engine does. All operations have the same Route.
	Do(ctx context.Context, ops []*Op)
}

// Watcher is a Backend that can tell when a key may have become free. Waiters on one that cannot are served by
// polling alone.
type Watcher interface {
	// Watch calls wake each time key may have become free: from any goroutine, holding no lock, with the Waiter
	// (the name of the engine) that freed it and the Waiter whose turn it is, "" where that is not known: the others
	// hold back for a moment then. It returns once the subscription stands, so that a Try made after it cannot miss a
	// release, or with an error when ctx ends or it cannot be had. stop ends the subscription and does not block; wake
	// may be called once more while it runs.
	Watch(ctx context.Context, key string, wake func(by, next string)) (stop func(), err error)
}

// Inspector is a Backend that can tell who holds a key, prefix included, and take it away. A key that nobody holds is no
// error; what is no lock is an ErrConflict, and stays as it is.
type Inspector interface {
	Inspect(ctx context.Context, key string) (Info, error)
	ForceRelease(ctx context.Context, key string) error
}

// Supporter is a Backend that checks what a hold asks for before anything is sent.
type Supporter interface {
	// Supports returns an ErrInvalidOption with the reason when the Backend cannot carry such a hold.
	Supports(h Hold) error
}

// Observable is a Backend that has events of its own to tell, such as a breaker's transitions. New hands it the
// Tracer; it must call it from no path that holds a lock.
type Observable interface {
	Observe(t Tracer)
}

// Guarded is a Backend with a breaker before each of its nodes, such as a fallback.
type Guarded interface {
	// Breakers tells of each; of nodes that were never asked for anything it need not.
	Breakers() []Breaker
}

// Breaker is the state of one breaker.
type Breaker struct {
	Node  string    // as Route names it: empty for the only one
	State string    // "closed", "open" or "half-open"
	Since time.Time // since when it is not closed; zero while it is
	Err   error     // the latest failure; nil while it is closed
}

// Gatherer is a Backend that can grant several keys as a whole or not at all.
type Gatherer interface {
	// Together tells whether a batch of Tries on keys may have All set.
	Together(keys []string) bool
}

// Prober is a Backend that can say whether the store serves again, by a small write that touches no lock and fails as
// long as locks cannot be taken. fallback asks it, in the background, while its breaker is half open; of others it takes
// a lock that nobody else wants.
type Prober interface {
	Probe(ctx context.Context, route string) error
}

// Closer is a Backend with resources of its own (a subscription's connection). Close of the engine calls it; the
// Backend stays usable and opens them again when needed. The client given by the user is never closed.
type Closer interface {
	Close() error
}

// Kind is the kind of a hold.
type Kind uint8

// The kinds of hold.
const (
	Exclusive Kind = iota // one holder
	Shared                // many readers, no exclusive holder beside them
	Limited               // up to Limit holders
)

func (k Kind) String() string {
	switch k {
	case Shared:
		return "shared"
	case Limited:
		return "limited"
	default:
		return "exclusive"
	}
}

// Hold is what an Acquire asks for.
type Hold struct {
	Key   string // prefix included, never empty, any bytes
	Kind  Kind
	Fair  bool
	Limit int // for Limited
	TTL   time.Duration
	Label string // who holds it, for people; no secret
	Note  string // what the Tracer leaves beside the lock for those who are kept out; often empty
	// Replicas is how many replicas must have a grant before it is one, and ReplicaTimeout how long they may take. 0: none.
	Replicas       int
	ReplicaTimeout time.Duration
	// Join is the owner of a hold that was carried to other processes (Lease.Export), and in which Owner takes part:
	// the first, whose owner it is, and those that joined it. A Try with it is granted beside that hold, with its fence,
	// or answered Absent or Foreign when it has ended; the key is freed with the last. Empty for all other holds.
	Join string
}

// Action is what an Op does.
type Action uint8

// The actions.
const (
	// Try takes the hold for Owner unless others stand in its way: Granted or Refused.
	Try Action = iota + 1
	// Extend sets the TTL of Owner's hold to TTL unless more is left: OK, Absent or Foreign. It creates nothing.
	Extend
	// Release frees Owner's hold and wakes those who wait: OK, Absent or Foreign. With Keep it turns the hold into
	// a completed mark that keeps others out for that long.
	Release
	// Refill reserves Fences further fences for Owner's hold, and tells of Outside waiters: OK, Absent or Foreign.
	Refill
	// Leave withdraws Waiter, if it is set, and Ticket, if it is set, from those who wait for the key: OK.
	Leave
	// Arrive puts Ticket in line unless it is there, and says that Waiter lives: OK, with Fenced 1 when it was not
	// there. Only Fair waiters arrive.
	Arrive
)

func (a Action) String() string {
	return [...]string{"none", "try", "extend", "release", "refill", "leave", "arrive"}[min(int(a), 6)]
}

// Verdict is the answer to an Op.
type Verdict uint8

// The verdicts. None stands until the Op is answered.
const (
	None    Verdict = iota
	Granted         // Try: the hold is Owner's
	Refused         // Try: others hold it
	OK              // Extend, Release, Refill, Leave, Arrive: done
	Absent          // Extend, Release, Refill, a Try with Join: nobody holds it
	Foreign         // Extend, Release, Refill, a Try with Join: others hold it, Owner does not
)

// Op is one operation on one key: the request above, the reply below. The engine owns it and makes a new one for
// each attempt; a Backend must not keep it after Do returns.
type Op struct {
	Action Action
	Hold
	// Owner is 32 hexadecimal digits of 128 random bits, new for every Try.
	Owner string
	// Waiter names the engine that asks (not the caller), when a refused Try will wait: the Backend then counts it
	// among those that wait, until it is granted, leaves or has not tried for WaiterTTL. Empty: it will not wait.
	// On Release and Refill it names the engine too, so that Outside leaves it out.
	Waiter string
	// Waiting: a Try of this engine was refused before in this wait, so it may be among those that wait.
	Waiting bool
	// Ticket is the place of a Fair waiter: the same in all its tries, empty otherwise. Its first 16 digits are the
	// engine's name. Tickets of one engine are its own to distribute: a Try takes the engine's first place in line, and
	// leaves to the others what its own ticket had.
	Ticket string
	// All: the batch is granted as a whole or not at all. It holds Tries of one kind of hold, without Waiter, for which
	// Together was true.
	All bool
	// Fences is how many fences a Try or Refill asks for at most; at least 1 for a Try.
	Fences int
	// Keep is for how long Release keeps others out.
	Keep time.Duration
	// Home is what the Backend left in the Op that was granted, and gets back with every later one of that hold.
	Home any

	Verdict Verdict
	// Err: the operation failed, or its outcome is not known. It wraps ErrUnavailable when the Backend could not
	// serve, ErrConflict or ErrDenied when it would not; else it is passed on as it is.
	Err error
	// Unsent: with Err, the operation has certainly not reached the store and never will.
	Unsent bool
	// Fence is the first fence that was granted, and Fenced how many there are from it on. 0: cannot fence.
	Fence  int64
	Fenced int
	// Left, with Refused: what is left of the holder's TTL, or of the cooldown when Completed. Zero: unknown.
	Left time.Duration
	// Completed, with Refused: the key is only kept after ReleaseAfter.
	Completed bool
	// Split, with Refused: no holder is known for sure, for attempts that met may have kept each other out. Another one
	// soon may find the key free.
	Split bool
	// Silent, with Refused: nobody is told when the holder, which is none of latchkit's, lets go. Waiters poll more often.
	Silent bool
	// Outside: other engines wait for the key.
	Outside bool
	// Degraded: the hold is not backed by the store; DegradedReason says why in a word or two of few values.
	Degraded bool
	// Open, with Granted: the hold keeps nobody out, not even in this process: a fallback that lets everyone through.
	Open           bool
	DegradedReason string
	// HolderNote, with Refused: the Note of a holder.
	HolderNote string
}

// WaiterTTL is how long a Backend counts an engine among a key's waiters after its last refused Try.
const WaiterTTL = 5 * time.Second

// Info is what Inspect tells of a key.
type Info struct {
	Key     string
	Held    bool
	Kind    Kind
	Backend string
	Holders []Holder
	// Waiters is how many engines wait, where that is known; -1 where not.
	Waiters int
	// Completed: nobody holds the key; it is kept after ReleaseAfter, for the Remaining of its only Holder entry.
	Completed bool
	// Foreign: the key is held by another library (a plain string with a TTL).
	Foreign bool
	// Nodes tells of each node of a RedLock.
	Nodes []NodeInfo
}

// Holder is one holder of a key. It carries no owner: that is a secret.
type Holder struct {
	Label     string
	Since     time.Time     // by the server's clock; zero: unknown
	Remaining time.Duration // what is left of the TTL
	Fence     int64         // 0: unknown
	Count     int           // holds counted under this owner (re-entry across processes); at least 1
	Here      bool          // held by this engine

	fences []int64 // those that nodes tell, where they do not agree
}

// NodeInfo tells of one node of a RedLock.
type NodeInfo struct {
	Name        string
	Err         error         // why it did not answer
	Holds       bool          // it reports a holder
	Quarantined time.Duration // for how long it refuses new owners
	Offset      time.Duration // its clock against this process's
}
