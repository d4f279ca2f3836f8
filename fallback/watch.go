package fallback

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkit/latchkit/core"
)

// watchLimit bounds how long a waiter waits for a subscription: one at a node that hangs must not keep it from a
// holder of this process.
const watchLimit = 500 * time.Millisecond

var errNoWatch = errors.New("latchkit: fallback: the backend cannot tell of releases")

// Watch implements core.Watcher: wake is called for releases on either side, and when the node's breaker opens or
// closes, since the key may then be had on the other side. While the breaker is not closed it needs no subscription in
// the backend, and gets one when the backend is back.
func (b *Backend) Watch(ctx context.Context, key string, wake func(by, next string)) (stop func(), err error) {
	w := &watch{key: key, wake: wake, node: b.node(b.inner.Route(key))}
	b.watches.add(w)
	if w.node.closed() {
		if err := b.attachWatch(ctx, w); err != nil && w.node.closed() {
			b.watches.remove(w)
			return nil, err
		}
	}
	return func() { b.watches.remove(w) }, nil
}

// attachWatch subscribes w in the backend.
func (b *Backend) attachWatch(ctx context.Context, w *watch) error {
	watcher, ok := b.inner.(core.Watcher)
	if !ok {
		return errNoWatch
	}
	ctx, cancel := context.WithTimeout(ctx, watchLimit)
	defer cancel()
	stop, err := watcher.Watch(ctx, w.key, w.wake)
	if err != nil {
		return err
	}
	w.hold(stop)
	return nil
}

// watch is a waiter's subscription.
type watch struct {
	key  string
	wake func(by, next string)
	node *node

	mu       sync.Mutex
	stop     func() // of the subscription in the backend; nil: there is none
	attached bool
	stopped  bool
}

// hold keeps stop for later, or calls it if the waiter has gone meanwhile.
func (w *watch) hold(stop func()) {
	w.mu.Lock()
	late := w.stopped
	if !late {
		w.stop, w.attached = stop, true
	}
	w.mu.Unlock()
	if late {
		stop()
	}
}

func (w *watch) end() {
	w.mu.Lock()
	stop := w.stop
	w.stop, w.stopped = nil, true
	w.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// watches are the subscriptions by key.
type watches struct {
	count atomic.Int64 // so that a release with no waiter takes no lock
	mu    sync.Mutex
	keys  map[string]map[*watch]struct{}
}

func (ws *watches) add(w *watch) {
	ws.count.Add(1)
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.keys == nil {
		ws.keys = make(map[string]map[*watch]struct{})
	}
	if ws.keys[w.key] == nil {
		ws.keys[w.key] = make(map[*watch]struct{})
	}
	ws.keys[w.key][w] = struct{}{}
}

func (ws *watches) remove(w *watch) {
	ws.mu.Lock()
	all := ws.keys[w.key]
	if _, ok := all[w]; ok {
		delete(all, w)
		ws.count.Add(-1)
		if len(all) == 0 {
			delete(ws.keys, w.key)
		}
	}
	ws.mu.Unlock()
	w.end()
}

// wake wakes those who wait for key.
func (ws *watches) wake(key, by string) {
	if ws.count.Load() == 0 {
		return
	}
	for _, w := range ws.pick(func(w *watch) bool { return true }, key) {
		w.wake(by, "")
	}
}

// wakeNode wakes those who wait for a key of n.
func (ws *watches) wakeNode(n *node) {
	for _, w := range ws.pick(func(w *watch) bool { return w.node == n }) {
		w.wake("", "")
	}
}

// attach gives those who wait for a key of n and have none a subscription in the backend. It wakes each, for a release
// may have come before.
func (ws *watches) attach(ctx context.Context, n *node) {
	bare := ws.pick(func(w *watch) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.node == n && !w.attached && !w.stopped
	})
	for _, w := range bare {
		if ctx.Err() != nil || !n.closed() || n.backend.attachWatch(ctx, w) != nil {
			return // they poll
		}
		w.wake("", "")
	}
}

// pick returns the watches of keys, or of all, that match.
func (ws *watches) pick(match func(*watch) bool, keys ...string) (picked []*watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	take := func(all map[*watch]struct{}) {
		for w := range all {
			if match(w) {
				picked = append(picked, w)
			}
		}
	}
	if len(keys) == 0 {
		for _, all := range ws.keys {
			take(all)
		}
	}
	for _, key := range keys {
		take(ws.keys[key])
	}
	return picked
}
