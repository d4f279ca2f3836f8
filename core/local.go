package core

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Local returns a Backend in the memory of this process: for tests, for a service of one instance, and for the
// fallback while Redis is away. Each call makes a world of its own; Locks over the same Backend exclude each other.
func Local() Backend {
	return &local{keys: make(map[string]*localKey), watchers: make(map[string]map[*func(string)]bool)}
}

type local struct {
	mu       sync.Mutex
	keys     map[string]*localKey
	fence    int64
	watchers map[string]map[*func(string)]bool
}

// localKey is what is known of one key: either completed, or held by holders of one kind.
type localKey struct {
	kind      Kind
	holders   []localHolder
	completed time.Time // until then the key is kept after ReleaseAfter
	keeper    string    // the label of who completed it
	waiters   map[string]localWaiter
}

type localHolder struct {
	owner, label, note string
	until, since       time.Time
	fence              int64
}

type localWaiter struct {
	until     time.Time
	exclusive bool
}

func (*local) Name() string        { return "local" }
func (*local) Route(string) string { return "" }

// Supports refuses what is not there.
func (*local) Supports(h Hold) error {
	if h.Fair {
		return fmt.Errorf("%w: WithFair: the backend \"local\" serves its one process in order of arrival anyway", ErrInvalidOption)
	}
	if h.Replicas > 0 {
		return fmt.Errorf("%w: WithReplicas: the backend \"local\" has none", ErrInvalidOption)
	}
	return nil
}

func (b *local) Do(_ context.Context, ops []*Op) {
	var freed []*Op
	now := time.Now()
	b.mu.Lock()
	for _, op := range ops {
		if b.do(op, now) {
			freed = append(freed, op)
		}
	}
	b.mu.Unlock()
	for _, op := range freed {
		b.wake(op.Key, op.Waiter)
	}
}

// do carries out op, and tells whether others may now have the key.
func (b *local) do(op *Op, now time.Time) (freed bool) {
	k := b.keys[op.Key]
	if k != nil {
		k.age(now)
	}
	switch op.Action {
	case Try:
		if k == nil {
			k = &localKey{}
			b.keys[op.Key] = k
		}
		b.try(k, op, now)
	case Leave:
		if k != nil {
			delete(k.waiters, op.Waiter)
		}
		op.Verdict = OK
	default:
		freed = b.onHeld(k, op, now)
	}
	if k != nil && k.empty() {
		delete(b.keys, op.Key)
	}
	return freed
}

func (b *local) try(k *localKey, op *Op, now time.Time) {
	if !k.room(op) {
		op.Verdict, op.Left, op.Completed = Refused, k.left(now), len(k.holders) == 0 && !k.completed.IsZero()
		if len(k.holders) > 0 {
			op.HolderNote = k.holders[0].note
		}
		if op.Waiter != "" {
			if k.waiters == nil {
				k.waiters = make(map[string]localWaiter)
			}
			k.waiters[op.Waiter] = localWaiter{now.Add(WaiterTTL), op.Kind == Exclusive}
		}
		return
	}
	delete(k.waiters, op.Waiter)
	op.Verdict = Granted
	op.Fence, op.Fenced = b.reserve(op.Fences, now)
	op.Outside = k.outside(op.Waiter)
	k.kind = op.Kind
	k.holders = append(k.holders, localHolder{owner: op.Owner, label: op.Label, note: op.Note,
		until: now.Add(op.TTL), since: now, fence: op.Fence})
}

// room tells whether op's hold fits beside what is there.
func (k *localKey) room(op *Op) bool {
	if !k.completed.IsZero() {
		return false
	}
	if op.Kind == Shared {
		for name, w := range k.waiters {
			if w.exclusive && name != op.Waiter {
				return false // readers that keep coming must not keep a writer out
			}
		}
	}
	switch {
	case len(k.holders) == 0:
		return true
	case k.kind != op.Kind || op.Kind == Exclusive:
		return false
	}
	return op.Kind != Limited || len(k.holders) < op.Limit
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
	if i < 0 {
		if k.kind == Exclusive {
			op.Verdict = Foreign
		}
		return false
	}
	op.Verdict = OK
	h := &k.holders[i]
	switch op.Action {
	case Extend:
		if until := now.Add(op.TTL); until.After(h.until) {
			h.until = until
		}
	case Refill:
		op.Fence, op.Fenced = b.reserve(op.Fences, now)
		op.Outside = k.outside(op.Waiter)
	case Release:
		op.Outside = k.outside(op.Waiter)
		if op.Keep > 0 {
			k.completed, k.keeper = now.Add(op.Keep), h.label
		}
		k.holders = append(k.holders[:i], k.holders[i+1:]...)
		return true
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
	return len(k.holders) == 0 && k.completed.IsZero() && len(k.waiters) == 0
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
func (b *local) Watch(_ context.Context, key string, wake func(by string)) (stop func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watchers[key] == nil {
		b.watchers[key] = make(map[*func(string)]bool)
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
	wakes := make([]func(string), 0, len(b.watchers[key]))
	for w := range b.watchers[key] {
		wakes = append(wakes, *w)
	}
	b.mu.Unlock()
	for _, w := range wakes {
		w(by)
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
			Fence: h.fence, Count: 1})
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
			delete(b.keys, key)
		}
	}
	b.mu.Unlock()
	b.wake(key, "")
	return nil
}
