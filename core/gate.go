package core

import (
	"hash/maphash"
	"sync"
	"time"
)

// maxWaiters bounds the queue of one key in one process. Past it Acquire says ErrTooManyWaiters: a queue that long
// is an outage, and memory must not be the second one.
const maxWaiters = 16384

// gates holds the gate of every key in use, in shards. One mutex guards all that belongs to the keys of a shard:
// gates, tenures, holds and what leases know of their end. Sections under it are short, touch no socket, call nothing of
// the user's but a Backend's Name and a Watcher's stop, which do not block, and may take the watchdog's mutex, never the
// other way round.
type gates struct {
	seed   maphash.Seed
	shards [64]shard
}

type shard struct {
	sync.Mutex
	gates map[string]*gate
}

func newGates() *gates {
	gs := &gates{seed: maphash.MakeSeed()}
	for i := range gs.shards {
		gs.shards[i].gates = make(map[string]*gate)
	}
	return gs
}

func (gs *gates) shard(key string) *shard {
	return &gs.shards[maphash.String(gs.seed, key)%uint64(len(gs.shards))]
}

// gate is the place in which the callers of one process meet over one key: a queue, first come, first served, whose
// head alone may go to the backend. It stands in front of any backend, so a breaker that sends one caller to Redis
// and the next to a local lock can still never admit two holders in this process.
//
// It exists while somebody holds, waits or tries; all fields are guarded by its shard.
type gate struct {
	shard *shard
	key   string // prefix included

	tenures []*tenure  // held by this process, those on their way out included
	one     [1]*tenure // what tenures begins with: most keys have one holder
	queue   queue      // the head leads when leading is set
	flight  *flight    // those who share its verdict; nil while nobody does

	refusal *NotAcquiredError // the last answer of the backend, while the queue waits on it
	pollAt  time.Time         // when the leader tries again, unless woken before
	watch   *watch            // stands while the queue waits for a holder elsewhere
	line    *line             // keeps the places of fair waiters; nil while there are none

	leading bool // the head of the queue talks to the backend
	flying  bool // the leader's try is under way
	yield   bool // pollAt is there to let another process go first
	lingers bool
	told    bool // the backend may count this engine among those that wait
}

// flight is an attempt whose verdict others share.
type flight struct {
	want Hold // the leader's
	done chan struct{}
	err  error // nil: no verdict for the others, they look again
}

// board returns the flight of the attempt under way.
func (g *gate) board() *flight {
	if g.flight == nil {
		g.flight = &flight{want: g.queue.head.want, done: make(chan struct{})} // who leads is the head
	}
	return g.flight
}

// open returns the gate of key, which it makes if needed. The shard is locked.
func (s *shard) open(key string) *gate {
	g := s.gates[key]
	if g == nil {
		g = &gate{shard: s, key: key}
		g.tenures = g.one[:0]
		s.gates[key] = g
	}
	return g
}

// compatible tells whether the holds of this process leave room for h. The backend decides about those of others.
func (g *gate) compatible(h *Hold) bool {
	same := 0
	for _, t := range g.tenures {
		if t.open {
			continue
		}
		if t.want.Kind != h.Kind || h.Kind == Exclusive {
			return false
		}
		same++
	}
	return h.Kind != Limited || same < h.Limit
}

// mayAsk tells whether a may go to the backend: nothing of this process is in its way, or nothing but readers and permits
// behind which it waits for an exclusive hold. The backend refuses it while they last, and lets no new ones in meanwhile.
func (g *gate) mayAsk(a *acquisition) bool {
	if g.compatible(&a.want) {
		return true
	}
	if a.wait == 0 || a.stays || a.want.Kind != Exclusive || a.want.Fair {
		return false
	}
	for _, t := range g.tenures {
		if t.want.Kind == Exclusive && !t.open {
			return false
		}
	}
	return true
}

// fits tells whether nobody of this process who has not let go is in the way of an exclusive hold that the backend has
// granted: it may have forgotten those who asked before.
func (g *gate) fits(a *acquisition) bool {
	if a.want.Kind != Exclusive {
		return true
	}
	for _, t := range g.tenures {
		if !t.open && t.state != releasing {
			return false
		}
	}
	return true
}

// open tells whether no holder of this process keeps an exclusive hold out.
func (g *gate) open() bool {
	for _, t := range g.tenures {
		if !t.open {
			return false
		}
	}
	return true
}

// advance makes the head of the queue the leader when nothing of this process stands in its way, and takes the gate
// down when nobody needs it. It is called after each change of the queue, of leading or of tenures.
func (g *gate) advance() {
	head := g.queue.head
	if head == nil {
		if g.watch != nil {
			g.watch.stop()
			g.watch = nil
		}
		if g.line != nil {
			g.line.nudge() // it is over
		}
		g.refusal = nil
		if g.yield && time.Now().Before(g.pollAt) {
			g.linger()
			return
		}
		g.pollAt, g.yield = time.Time{}, false
		if len(g.tenures) == 0 && !g.leading && g.flight == nil && !g.lingers {
			delete(g.shard.gates, g.key)
		}
		return
	}
	if !g.leading && g.mayAsk(head) {
		g.leading, head.leads = true, true
		head.signal(turn{})
	}
}

// linger keeps an empty gate for the moment in which other processes go first, or a caller that comes right after its
// own release would push past those who have waited.
func (g *gate) linger() {
	if g.lingers {
		return
	}
	g.lingers = true
	time.AfterFunc(time.Until(g.pollAt), func() {
		g.shard.Lock()
		defer g.shard.Unlock()
		g.lingers = false
		g.advance()
	})
}

// fail ends everyone who waits behind the leader with err: what the backend said to one holds for all who ask for as
// many replicas.
func (g *gate) fail(err error, replicas int) {
	for a := g.queue.head; a != nil; {
		next := a.next
		if !a.leads && a.want.Replicas >= replicas {
			g.queue.remove(a)
			a.quit(g)
			a.signal(turn{err: err})
		}
		a = next
	}
}

// land publishes the verdict of the leader's try to those who share it.
func (g *gate) land(err error) {
	g.flying = false
	if g.flight != nil {
		g.flight.err = err
		close(g.flight.done)
		g.flight = nil
	}
}

// leave takes a out of the queue, and lets the next lead if a did.
func (g *gate) leave(a *acquisition) {
	if a.leads {
		g.leading, a.leads = false, false
	}
	g.queue.remove(a)
	g.advance()
}

// busy is the refusal by a holder of this process, which needs no trip.
func (g *gate) busy(key string, now time.Time) *NotAcquiredError {
	for _, t := range g.tenures {
		if t.open {
			continue
		}
		err := &NotAcquiredError{Key: key, RetryAfter: max(0, t.deadline.Sub(now))}
		err.mark = t.hold.markOf()
		return err
	}
	if g.refusal != nil {
		again := *g.refusal
		return &again
	}
	return &NotAcquiredError{Key: key}
}
