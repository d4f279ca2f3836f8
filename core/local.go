package core

import (
	"context"
	"sync"
	"time"
)

// Local returns a Backend in the memory of this process: for tests, for a service of one instance, and for the
// fallback while Redis is away. Each call makes a world of its own; Locks over the same Backend exclude each other.
func Local() Backend {
	return &local{keys: make(map[string]*localKey), watchers: make(map[string]map[*func(by, next string)]bool)}
}

type local struct {
	mu       sync.Mutex
	keys     map[string]*localKey
	fence    int64
	watchers map[string]map[*func(by, next string)]bool
	spare    *localKey // memory of one that was forgotten, for the next
}

// localKey is what is known of one key: either completed, or held by holders of one kind.
type localKey struct {
	kind      Kind
	holders   []localHolder
	one       [1]localHolder // what holders begins with: most keys have one
	completed time.Time      // until then the key is kept after ReleaseAfter
	keeper    string         // the label of who completed it
	waiters   map[string]localWaiter
	line      localLine
}

type localHolder struct {
	owner, label, note string
	until, since       time.Time
	fence              int64
	// parts are those who take part in the hold, the first included, once somebody has joined it.
	parts map[string]time.Time
	keep  time.Time // for how long the first wants others kept out once the last has gone
}

type localWaiter struct {
	until time.Time
	kind  Kind
	fair  bool
}

func (*local) Name() string        { return "local" }
func (*local) Route(string) string { return "" }

// Together implements Gatherer.
func (*local) Together([]string) bool { return true }

func (b *local) Do(_ context.Context, ops []*Op) {
	var freed []*Op
	now := time.Now()
	b.mu.Lock()
	if ops[0].All && !b.allFree(ops, now) {
		b.mu.Unlock()
		return
	}
	for _, op := range ops {
		if b.do(op, now) && len(b.watchers[op.Key]) > 0 {
			freed = append(freed, op)
		}
	}
	b.mu.Unlock()
	for _, op := range freed {
		by := op.Waiter
		if op.Join != "" {
			by = "" // somebody of its own engine may wait for the hold in which it took part
		}
		b.wake(op.Key, by)
	}
}

// allFree tells whether every Try of the batch would be granted. If not, it refuses all of them.
func (b *local) allFree(ops []*Op, now time.Time) bool {
	free := true
	for _, op := range ops {
		op.Verdict = Refused
		k := b.keys[op.Key]
		if k == nil {
			continue
		}
		k.age(now)
		if !k.room(op, 0) {
			free = false
			k.refuse(op, now)
		}
	}
	return free
}

// do carries out op, and tells whether others may now have the key.
func (b *local) do(op *Op, now time.Time) (freed bool) {
	k := b.keys[op.Key]
	if k != nil {
		k.age(now)
	}
	if k == nil && (op.Action == Try || op.Action == Arrive) {
		k = b.remember(op.Key)
	}
	switch op.Action {
	case Try:
		b.try(k, op, now)
	case Arrive:
		op.Verdict = OK
		if k.register(op, now) {
			op.Fenced = 1
		}
	case Leave:
		op.Verdict = OK
		freed = k != nil && k.leave(op)
	default:
		freed = b.onHeld(k, op, now)
	}
	if k != nil && k.empty() {
		b.forget(op.Key, k)
	}
	return freed
}

func (b *local) remember(key string) *localKey {
	k := b.spare
	if b.spare = nil; k == nil {
		k = new(localKey)
	}
	k.holders = k.one[:0]
	b.keys[key] = k
	return k
}

// forget drops a key of which nothing is known any more. Most live for a moment, so its memory is the next one's.
func (b *local) forget(key string, k *localKey) {
	delete(b.keys, key)
	*k = localKey{}
	b.spare = k
}

func (b *local) try(k *localKey, op *Op, now time.Time) {
	if op.Join != "" {
		k.join(op, now)
		return
	}
	first, ahead, stands := k.line.place(op, now)
	if !stands || !k.room(op, ahead) {
		k.refuse(op, now)
		if op.Waiter != "" {
			k.register(op, now)
		}
		return
	}
	delete(k.waiters, op.Waiter)
	k.line.leave(op.Ticket, first)
	op.Verdict = Granted
	op.Fence, op.Fenced = b.reserve(op.Fences, now)
	op.Outside = k.outside(op.Waiter)
	k.hold(op, op.Fence, now)
}

func (k *localKey) hold(op *Op, fence int64, now time.Time) {
	k.kind = op.Kind
	k.holders = append(k.holders, localHolder{owner: op.Owner, label: op.Label, note: op.Note,
		until: now.Add(op.TTL), since: now, fence: fence})
}

func (k *localKey) refuse(op *Op, now time.Time) {
	op.Verdict, op.Left, op.Completed = Refused, k.left(now), len(k.holders) == 0 && !k.completed.IsZero()
	if len(k.holders) > 0 {
		op.HolderNote = k.holders[0].note
	}
}

// register counts op's engine among those that wait, and puts its ticket in line; it tells whether that was new there.
func (k *localKey) register(op *Op, now time.Time) (arrived bool) {
	if k.waiters == nil {
		k.waiters = make(map[string]localWaiter)
	}
	k.waiters[op.Waiter] = localWaiter{now.Add(WaiterTTL), op.Kind, op.Fair}
	return op.Ticket != "" && k.line.arrive(op, now)
}

// leave withdraws op's engine or ticket, and tells whether that may let others in.
func (k *localKey) leave(op *Op) (opens bool) {
	if op.Ticket != "" {
		opens = k.line.leave(op.Ticket, "")
	}
	if w, ok := k.waiters[op.Waiter]; ok && op.Waiter != "" {
		opens = opens || w.kind == Exclusive
		delete(k.waiters, op.Waiter)
	}
	return opens && len(k.waiters) > 0
}

// room tells whether op's hold fits beside what is there, and beside ahead others that come first.
func (k *localKey) room(op *Op, ahead int) bool {
	if !k.completed.IsZero() || k.barred(op) {
		return false
	}
	switch {
	case op.Kind == Exclusive:
		return len(k.holders) == 0
	case len(k.holders) > 0 && k.kind != op.Kind:
		return false
	}
	return op.Kind != Limited || len(k.holders)+ahead < op.Limit
}

// barred: those that keep coming must not keep an exclusive one out that waits. Of the fair ones the line decides.
func (k *localKey) barred(op *Op) bool {
	if op.Kind == Exclusive {
		return false
	}
	for name, w := range k.waiters {
		if w.kind == Exclusive && name != op.Waiter && (!op.Fair || !w.fair) {
			return true
		}
	}
	return false
}

// join lets op's owner take part in the hold of another.
func (k *localKey) join(op *Op, now time.Time) {
	op.Verdict = Absent
	i := k.find(op.Join)
	if i < 0 {
		if len(k.holders) > 0 {
			op.Verdict = Foreign
		}
		return
	}
	h := &k.holders[i]
	switch {
	case k.kind == Exclusive:
		if h.parts == nil {
			h.parts = map[string]time.Time{h.owner: h.until}
		}
		h.parts[op.Owner] = now.Add(op.TTL)
		h.until = later(h.until, now.Add(op.TTL))
	case k.kind == Shared && op.Kind == Shared:
		k.hold(op, h.fence, now)
	default:
		op.Verdict = Foreign
		return
	}
	op.Verdict, op.Fence, op.Fenced = Granted, k.holders[i].fence, 1
}

func (b *local) onHeld(k *localKey, op *Op, now time.Time) (freed bool) {
	op.Verdict = Absent
	if k == nil || len(k.holders) == 0 {
		if k != nil && !k.completed.IsZero() {
			op.Verdict = Foreign
		}
		return false
	}
	i := k.find(op.Owner)
	if i < 0 && op.Join != "" {
		i = k.find(op.Join)
	}
	if i < 0 {
		if k.kind == Exclusive {
			op.Verdict = Foreign
		}
		return false
	}
	h := &k.holders[i]
	if _, takesPart := h.parts[op.Owner]; !takesPart && (h.parts != nil || h.owner != op.Owner) {
		return false
	}
	op.Verdict = OK
	switch op.Action {
	case Extend:
		h.extend(op.Owner, now.Add(op.TTL))
	case Refill:
		op.Fence, op.Fenced = b.reserve(op.Fences, now)
		op.Outside = k.outside(op.Waiter)
	case Release:
		op.Outside = k.outside(op.Waiter)
		if op.Keep > 0 && (op.Join == "" || op.Join == op.Owner) {
			h.keep = now.Add(op.Keep)
		}
		if h.shared(op.Owner, now) {
			return false
		}
		if now.Before(h.keep) {
			k.completed, k.keeper = h.keep, h.label
		}
		k.holders = append(k.holders[:i], k.holders[i+1:]...)
		return true
	}
	return false
}

func (h *localHolder) extend(owner string, until time.Time) {
	h.until = later(h.until, until)
	if h.parts != nil {
		h.parts[owner] = later(h.parts[owner], until)
	}
}

// shared withdraws owner, and tells whether others take part in the hold still.
func (h *localHolder) shared(owner string, now time.Time) bool {
	delete(h.parts, owner)
	for _, until := range h.parts {
		if now.Before(until) {
			return true
		}
	}
	return false
}

// reserve gives up to n fences: at least one, and else none ahead of the clock, so that a new process, which starts at
// the clock, is above all that were given.
func (b *local) reserve(n int, now time.Time) (first int64, count int) {
	clock := now.UnixMicro()
	n = max(1, min(n, int(min(clock-b.fence, 1<<20))))
	first = max(b.fence+1, clock-int64(n)+1)
	b.fence = first + int64(n) - 1
	return first, n
}

func (k *localKey) age(now time.Time) {
	kept := k.holders[:0]
	for _, h := range k.holders {
		if now.Before(h.until) {
			kept = append(kept, h)
		}
	}
	k.holders = kept
	if !k.completed.IsZero() && !now.Before(k.completed) {
		k.completed = time.Time{}
	}
	for name, w := range k.waiters {
		if !now.Before(w.until) {
			delete(k.waiters, name)
		}
	}
}

func (k *localKey) empty() bool {
	return len(k.holders) == 0 && k.completed.IsZero() && len(k.waiters) == 0 && len(k.line.tickets) == 0
}

func (k *localKey) find(owner string) int {
	for i := range k.holders {
		if k.holders[i].owner == owner {
			return i
		}
	}
	return -1
}

// left is the time until something changes by itself.
func (k *localKey) left(now time.Time) time.Duration {
	at := k.completed
	for _, h := range k.holders {
		switch {
		case at.IsZero(), k.kind == Limited && h.until.Before(at), k.kind == Shared && h.until.After(at):
			at = h.until // all readers must go; one of several permits is enough
		}
	}
	if at.IsZero() {
		return 0
	}
	return at.Sub(now)
}

func (k *localKey) outside(waiter string) bool {
	for name := range k.waiters {
		if name != waiter {
			return true
		}
	}
	return false
}

// Watch implements Watcher.
func (b *local) Watch(_ context.Context, key string, wake func(by, next string)) (stop func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watchers[key] == nil {
		b.watchers[key] = make(map[*func(by, next string)]bool)
	}
	b.watchers[key][&wake] = true
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watchers[key], &wake)
		if len(b.watchers[key]) == 0 {
			delete(b.watchers, key)
		}
	}, nil
}

func (b *local) wake(key, by string) {
	b.mu.Lock()
	wakes := make([]func(by, next string), 0, len(b.watchers[key]))
	for w := range b.watchers[key] {
		wakes = append(wakes, *w)
	}
	b.mu.Unlock()
	for _, w := range wakes {
		w(by, "")
	}
}

// Inspect implements Inspector.
func (b *local) Inspect(_ context.Context, key string) (Info, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	info := Info{Key: key}
	k, now := b.keys[key], time.Now()
	if k == nil {
		return info, nil
	}
	k.age(now)
	info.Kind, info.Waiters, info.Held = k.kind, len(k.waiters), len(k.holders) > 0
	for _, h := range k.holders {
		info.Holders = append(info.Holders, Holder{Label: h.label, Since: h.since, Remaining: h.until.Sub(now),
			Fence: h.fence, Count: max(1, len(h.parts))})
	}
	if !info.Held && !k.completed.IsZero() {
		info.Completed = true
		info.Holders = []Holder{{Label: k.keeper, Remaining: k.completed.Sub(now), Count: 1}}
	}
	return info, nil
}

// ForceRelease implements Inspector.
func (b *local) ForceRelease(_ context.Context, key string) error {
	b.mu.Lock()
	if k := b.keys[key]; k != nil {
		k.holders, k.completed = nil, time.Time{}
		if k.empty() {
			b.forget(key, k)
		}
	}
	b.mu.Unlock()
	b.wake(key, "")
	return nil
}
