package fallback

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/latchkit/latchkit/core"
)

// Backend is a core.Backend with a breaker per node and locks of this process behind it. Wrap makes it; its methods may
// be called concurrently.
type Backend struct {
	inner    core.Backend
	settings settings
	ledger   *ledger
	watches  watches
	events   events
	errands  errands

	mu    sync.RWMutex
	nodes map[string]*node
}

// Wrap returns b with a fallback. It contacts nothing, so it succeeds while b is down; an option out of its range, and
// a nil b, are errors of core.New. Engines over one such Backend exclude each other on both sides.
//
// The result is a *Backend, whose State tells of the breakers.
func Wrap(b core.Backend, opts ...Option) core.Backend {
	s := defaults()
	for _, o := range opts {
		if o != nil {
			o(&s)
		}
	}
	if b == nil {
		s.fail("Wrap", nil, "a Backend")
	}
	return &Backend{inner: b, settings: s, ledger: newLedger(), nodes: make(map[string]*node)}
}

// Name is the name of the backend behind the fallback.
func (b *Backend) Name() string { return b.inner.Name() }

// Route names the node that serves key, as the backend behind the fallback does.
func (b *Backend) Route(key string) string { return b.inner.Route(key) }

// Check is called by core.New.
func (b *Backend) Check() error {
	if b.settings.err != nil {
		return b.settings.err
	}
	if c, ok := b.inner.(interface{ Check() error }); ok {
		return c.Check()
	}
	return nil
}

// Supports asks the backend behind the fallback: what it cannot carry is refused while it is away as well.
func (b *Backend) Supports(h core.Hold) error {
	if s, ok := b.inner.(core.Supporter); ok {
		return s.Supports(h)
	}
	return nil
}

// Together implements core.Gatherer, as the backend behind the fallback does.
func (b *Backend) Together(keys []string) bool {
	g, ok := b.inner.(core.Gatherer)
	return ok && g.Together(keys)
}

// State is the state of the breaker; with several nodes the worst of all: open, else half-open, else closed.
func (b *Backend) State() gobreaker.State {
	worst := gobreaker.StateClosed
	for _, s := range b.States() {
		worst = max(worst, s) // gobreaker's order: closed, half-open, open
	}
	return worst
}

// States are the states of the breakers by node. A node appears with the first trip to it.
func (b *Backend) States() map[string]gobreaker.State {
	b.mu.RLock()
	defer b.mu.RUnlock()
	all := make(map[string]gobreaker.State, len(b.nodes))
	for name, n := range b.nodes {
		all[name] = n.current()
	}
	return all
}

// Breakers implements core.Guarded.
func (b *Backend) Breakers() []core.Breaker {
	b.mu.RLock()
	defer b.mu.RUnlock()
	all := make([]core.Breaker, 0, len(b.nodes))
	for _, n := range b.nodes {
		all = append(all, n.describe())
	}
	return all
}

func (n *node) describe() core.Breaker {
	state := n.current()
	d := core.Breaker{Node: n.name, State: state.String()}
	if state == gobreaker.StateClosed {
		return d
	}
	n.mu.Lock()
	d.Since = n.openedAt
	n.mu.Unlock()
	if err := n.lastFailure.Load(); err != nil {
		d.Err = *err
	}
	return d
}

// Do implements core.Backend.
func (b *Backend) Do(ctx context.Context, ops []*core.Op) {
	if len(ops) == 0 {
		return
	}
	for _, op := range ops {
		if g, ok := op.Home.(*grant); ok && (g.owner != op.Owner || g.hold.Key != op.Key) {
			op.Home = nil // of another's hold, which this is not to end
		}
	}
	n := b.node(b.inner.Route(ops[0].Key))
	if n.closed() {
		n.serve(ctx, ops)
	} else {
		n.standIn(ops, true)
	}
	if ops[0].All {
		n.asWhole(ops)
	}
}

// Close ends what runs in the background and closes the backend behind the fallback, if it can be closed. The Backend
// stays usable.
func (b *Backend) Close() error {
	b.mu.RLock()
	for _, n := range b.nodes {
		n.rest()
	}
	b.mu.RUnlock()
	b.errands.stop()
	if c, ok := b.inner.(core.Closer); ok {
		return c.Close()
	}
	return nil
}

func (b *Backend) node(name string) *node {
	b.mu.RLock()
	n := b.nodes[name]
	b.mu.RUnlock()
	if n != nil {
		return n
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if n = b.nodes[name]; n == nil {
		n = newNode(b, name)
		b.nodes[name] = n
		b.events.begin(core.BreakerEvent{Backend: b.inner.Name(), Node: name, To: n.current().String(), At: time.Now()})
	}
	return n
}

func (b *Backend) logger() *slog.Logger {
	if b.settings.logger != nil {
		return b.settings.logger
	}
	return slog.Default()
}

// degraded tells of a lease that is held without the backend.
func (b *Backend) degraded(what Crossing, n *node, key string) {
	if fn := b.settings.onDegraded; fn != nil {
		b.events.degraded(fn, Degradation{What: what, Key: key, Node: n.name, At: time.Now()})
	}
}

// unavailable is the error of an operation that waits for the backend to come back.
func (n *node) unavailable() error {
	err := fmt.Errorf("%w: the breaker is open", core.ErrUnavailable)
	if last := n.lastFailure.Load(); last != nil {
		return fmt.Errorf("%w: the breaker is open after %w", core.ErrUnavailable, *last)
	}
	return err
}

func clearReply(op *core.Op) { setReply(op, core.Op{}) }

// setReply gives op the reply of another. What op asks for stays untouched: its caller may read it at the same time, once
// it has been told that the trip is late.
func setReply(op *core.Op, reply core.Op) {
	op.Verdict, op.Err, op.Unsent = reply.Verdict, reply.Err, reply.Unsent
	op.Fence, op.Fenced, op.Left, op.HolderNote = reply.Fence, reply.Fenced, reply.Left, reply.HolderNote
	op.Completed, op.Split, op.Silent, op.Outside = reply.Completed, reply.Split, reply.Silent, reply.Outside
	op.Degraded, op.DegradedReason, op.Open = reply.Degraded, reply.DegradedReason, reply.Open
}
