package fallback

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkit/latchkit/core"
)

// ledger is the memory of this process: what either side has granted to it. What was granted here it decides about.
// What the store granted it only keeps in mind, so that nobody is let in beside such a holder once the store is away.
//
// It needs no timer: what has run out is dropped when its key is looked at, or when its shard has grown.
type ledger struct {
	seed   maphash.Seed
	shards [32]shard
	// homemade counts grants and marks that the store does not know of. While there are none, a Try with a closed
	// breaker need not look here.
	homemade atomic.Int64
}

type shard struct {
	sync.Mutex
	keys  map[string]*entry
	sweep int // the size at which to look for what has run out
}

// entry is what is known of one key.
type entry struct {
	grants []*grant
	first  [1]*grant // the room for grants, while one is enough
	// mark is until when the key is kept after ReleaseAfter; markHere: the store does not know.
	mark     time.Time
	markHere bool
	// writers are the engines with a refused exclusive Try that will come again, and until when that counts.
	writers map[string]time.Time
}

// side tells who answers for a grant.
type side uint8

const (
	there    side = iota // the store
	carried              // the store granted it and could not renew it: this process, until the store finds it again
	here                 // this process
	promoted             // granted here, and written to the store since
	allowed              // nobody
)

// grant is the Home of a hold. All but its first block is guarded by the shard of its key.
type grant struct {
	hold  core.Hold // as it was granted
	owner string
	node  *node

	side  side
	why   string    // the breaker's state when it came to be held without the store
	join  string    // the hold's Join by now: that of the first is known only once another process takes part
	inner any       // the store's own Home
	until time.Time // when it runs out unless extended
	alone time.Time // since when it is held without the store
	// thereUntil is until when the store may have the owner's key; zero: it has none.
	thereUntil time.Time
	gone       bool // released, lost or run out
	released   bool // gone because its holder said so
	native     bool // the store granted it first
	promoting  bool
	overlapped bool // another process had the key in the store, which was told
}

// homeSide is where a carried grant returns to.
func (g *grant) homeSide() side {
	if g.native {
		return there
	}
	return promoted
}

// root is the owner of the hold that g takes part in: its own, unless it was carried here by another process.
func (g *grant) root() string { return root(g.owner, g.join) }

func root(owner, join string) string {
	if join != "" {
		return join
	}
	return owner
}

// op returns an operation of the background on g.
func (g *grant) op(a core.Action) *core.Op {
	op := &core.Op{Action: a, Hold: g.hold, Owner: g.owner}
	op.Join = g.join
	return op
}

// homemade: the store may not know of the grant.
func (g *grant) homemade() bool { return g.side == here || g.side == carried }

func newLedger() *ledger {
	l := &ledger{seed: maphash.MakeSeed()}
	for i := range l.shards {
		l.shards[i].keys = make(map[string]*entry)
		l.shards[i].sweep = 64
	}
	return l
}

func (l *ledger) lock(key string) *shard {
	s := &l.shards[maphash.String(l.seed, key)%uint64(len(l.shards))]
	s.Lock()
	return s
}

// refusal is why a Try fails.
type refusal struct {
	left      time.Duration
	completed bool
	note      string
}

func (r *refusal) apply(op *core.Op) {
	clearReply(op)
	op.Verdict, op.Left, op.Completed, op.HolderNote = core.Refused, r.left, r.completed, r.note
}

// keepsOut returns the refusal of a Try that meets what the store does not know of, or nil.
func (l *ledger) keepsOut(op *core.Op, now time.Time) *refusal {
	if l.homemade.Load() == 0 {
		return nil
	}
	s := l.lock(op.Key)
	defer s.Unlock()
	e := l.look(s, op.Key, now)
	if e == nil || !e.homemade() {
		return nil
	}
	return e.room(op.Hold, root(op.Owner, op.Join), op.Waiter, now)
}

// take records g as granted here, unless there is no room.
func (l *ledger) take(g *grant, waiter string, now time.Time) *refusal {
	s := l.lock(g.hold.Key)
	defer s.Unlock()
	e := l.open(s, g.hold.Key, now)
	if r := e.room(g.hold, g.root(), waiter, now); r != nil {
		e.waits(g.hold.Kind, waiter, now)
		return r
	}
	delete(e.writers, waiter)
	l.add(e, g)
	return nil
}

// knows tells whether a hold of root is among those of key.
func (l *ledger) knows(key, root string, now time.Time) bool {
	s := l.lock(key)
	defer s.Unlock()
	e := l.look(s, key, now)
	return e != nil && slices.ContainsFunc(e.grants, func(g *grant) bool { return g.root() == root })
}

// adopt records g, which the store has granted, unless it stands against what this process has granted meanwhile.
func (l *ledger) adopt(g *grant, now time.Time) *refusal {
	s := l.lock(g.hold.Key)
	defer s.Unlock()
	e := l.open(s, g.hold.Key, now)
	if e.homemade() {
		if r := e.room(g.hold, g.root(), "", now); r != nil {
			return r
		}
	}
	l.add(e, g)
	return nil
}

// on calls fn with g under its lock, unless g is gone.
func (l *ledger) on(g *grant, now time.Time, fn func()) (alive bool) {
	s := l.lock(g.hold.Key)
	defer s.Unlock()
	if l.look(s, g.hold.Key, now); g.gone {
		return false
	}
	before := g.homemade()
	fn()
	l.count(before, g.homemade())
	return true
}

// onGone calls fn with g, which is gone, under its lock.
func (l *ledger) onGone(g *grant, fn func()) {
	s := l.lock(g.hold.Key)
	defer s.Unlock()
	fn()
}

// side tells who answers for g.
func (l *ledger) side(g *grant) side {
	s := l.lock(g.hold.Key)
	defer s.Unlock()
	return g.side
}

// release returns the operation that deletes g in the store.
func (l *ledger) release(g *grant) *core.Op {
	s := l.lock(g.hold.Key)
	defer s.Unlock()
	op := g.op(core.Release)
	op.Home = g
	return op
}

// mayLast notes that the store may have the key of g until then.
func (l *ledger) mayLast(g *grant, until time.Time) {
	s := l.lock(g.hold.Key)
	defer s.Unlock()
	g.thereUntil = later(g.thereUntil, until)
}

// thereUntil tells until when the store may have the key of g.
func (l *ledger) thereUntil(g *grant) time.Time {
	s := l.lock(g.hold.Key)
	defer s.Unlock()
	return g.thereUntil
}

// remove ends g as op says, for its holder, with a mark in its stead if op keeps the key. It returns g as it was.
func (l *ledger) remove(g *grant, op *core.Op, now time.Time) (was grant) {
	s := l.lock(g.hold.Key)
	defer s.Unlock()
	e := l.look(s, g.hold.Key, now)
	g.join = op.Join
	was = *g
	if g.released = true; g.gone {
		return was
	}
	if g.side == allowed {
		g.gone = true
		return was
	}
	if e == nil {
		return was
	}
	if i := slices.Index(e.grants, g); i >= 0 {
		e.grants = slices.Delete(e.grants, i, i+1)
	}
	l.end(g)
	if op.Keep > 0 {
		l.setMark(e, now.Add(op.Keep), g.homemade() || !g.node.closed())
	}
	l.tidy(s, g.hold.Key, e)
	return was
}

// clear ends all that is known of key, and returns it.
func (l *ledger) clear(key string, now time.Time) []*grant {
	s := l.lock(key)
	defer s.Unlock()
	e := l.look(s, key, now)
	if e == nil {
		return nil
	}
	ended := e.grants
	for _, g := range ended {
		l.end(g)
	}
	e.grants = nil
	l.setMark(e, time.Time{}, false)
	l.tidy(s, key, e)
	return ended
}

// forget takes the engine out of those who wait for key.
func (l *ledger) forget(key, waiter string, now time.Time) {
	s := l.lock(key)
	defer s.Unlock()
	if e := l.look(s, key, now); e != nil {
		delete(e.writers, waiter)
		l.tidy(s, key, e)
	}
}

// strangers returns the grants of a node that the store should be told of.
func (l *ledger) strangers(n *node, now time.Time) (all []*grant) {
	if l.homemade.Load() == 0 {
		return nil
	}
	for i := range l.shards {
		s := &l.shards[i]
		s.Lock()
		for _, e := range s.keys {
			for _, g := range e.grants {
				if g.node == n && g.side == here && now.Before(g.until) {
					all = append(all, g)
				}
			}
		}
		s.Unlock()
	}
	return all
}

// snapshot returns copies of what holds key, and until when a mark keeps it.
func (l *ledger) snapshot(key string, now time.Time) (grants []grant, mark time.Time) {
	s := l.lock(key)
	defer s.Unlock()
	e := l.look(s, key, now)
	if e == nil {
		return nil, time.Time{}
	}
	for _, g := range e.grants {
		grants = append(grants, *g)
	}
	return grants, e.mark
}

// What follows runs under the shard's lock.

// look returns the entry of key without what has run out, or nil.
func (l *ledger) look(s *shard, key string, now time.Time) *entry {
	e := s.keys[key]
	if e == nil {
		return nil
	}
	l.age(e, now)
	if e.empty() {
		delete(s.keys, key)
		return nil
	}
	return e
}

// open returns the entry of key, which it makes if needed.
func (l *ledger) open(s *shard, key string, now time.Time) *entry {
	if e := l.look(s, key, now); e != nil {
		return e
	}
	if len(s.keys) >= s.sweep {
		for other, e := range s.keys {
			l.age(e, now)
			l.tidy(s, other, e)
		}
		s.sweep = max(64, 2*len(s.keys))
	}
	e := &entry{}
	e.grants = e.first[:0]
	s.keys[key] = e
	return e
}

func (l *ledger) age(e *entry, now time.Time) {
	e.grants = slices.DeleteFunc(e.grants, func(g *grant) bool {
		over := !now.Before(g.until)
		if over {
			l.end(g)
		}
		return over
	})
	if !e.mark.IsZero() && !now.Before(e.mark) {
		l.setMark(e, time.Time{}, false)
	}
	for name, until := range e.writers {
		if !now.Before(until) {
			delete(e.writers, name)
		}
	}
}

func (l *ledger) tidy(s *shard, key string, e *entry) {
	if e.empty() {
		delete(s.keys, key)
	}
}

func (l *ledger) add(e *entry, g *grant) {
	e.grants = append(e.grants, g)
	l.count(false, g.homemade())
}

func (l *ledger) end(g *grant) {
	g.gone = true
	l.count(g.homemade(), false)
}

func (l *ledger) setMark(e *entry, until time.Time, homemade bool) {
	l.count(e.markHere, homemade)
	e.mark, e.markHere = until, homemade
}

func (l *ledger) count(before, after bool) {
	switch {
	case after && !before:
		l.homemade.Add(1)
	case before && !after:
		l.homemade.Add(-1)
	}
}

func (e *entry) empty() bool { return len(e.grants) == 0 && e.mark.IsZero() && len(e.writers) == 0 }

// homemade tells whether the entry holds anything that the store may not know of.
func (e *entry) homemade() bool {
	return e.markHere || slices.ContainsFunc(e.grants, (*grant).homemade)
}

// room returns why h does not fit beside what is there, or nil. root is whose hold it is, or takes part in.
func (e *entry) room(h core.Hold, root, waiter string, now time.Time) *refusal {
	if !e.mark.IsZero() {
		return &refusal{left: e.mark.Sub(now), completed: true}
	}
	if h.Kind == core.Shared && len(e.writers) > 0 && len(e.grants) > 0 {
		for name := range e.writers {
			if name != waiter { // readers that keep coming must not keep a writer out
				return e.refuse(func(*grant) bool { return true }, now)
			}
		}
	}
	blocks := func(g *grant) bool {
		return g.root() != root && (h.Kind == core.Exclusive || g.hold.Kind != h.Kind)
	}
	if slices.ContainsFunc(e.grants, blocks) {
		return e.refuse(blocks, now)
	}
	if h.Kind == core.Limited {
		others := func(g *grant) bool { return g.root() != root }
		n := 0
		for _, g := range e.grants {
			if others(g) {
				n++
			}
		}
		if n >= h.Limit {
			return e.refuse(others, now)
		}
	}
	return nil
}

// refuse tells for how long: until the last has gone, or of several permits the first.
func (e *entry) refuse(blocks func(*grant) bool, now time.Time) *refusal {
	r := &refusal{}
	for _, g := range e.grants {
		if !blocks(g) {
			continue
		}
		left := g.until.Sub(now)
		if r.left == 0 || (left > r.left) != (g.hold.Kind == core.Limited) {
			r.left = left
		}
		r.note = g.hold.Note
	}
	return r
}

func (e *entry) waits(k core.Kind, waiter string, now time.Time) {
	if waiter == "" || k != core.Exclusive {
		return
	}
	if e.writers == nil {
		e.writers = make(map[string]time.Time)
	}
	e.writers[waiter] = now.Add(core.WaiterTTL)
}
