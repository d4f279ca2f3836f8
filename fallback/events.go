package fallback

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/latchkit/latchkit/core"
)

// events tells others what happens: in order, from one goroutine that lives while there is something to tell, and with
// no lock held, so that whoever is told may use the locks.
type events struct {
	mu      sync.Mutex
	queue   []func()
	telling bool
	tracers []core.BreakerTracer
	waiting int // Degradations in the queue
	missed  int
}

const maxDegradations = 1024

// push appends fn. e.mu is locked.
func (e *events) push(fn func()) {
	e.queue = append(e.queue, fn)
	if !e.telling {
		e.telling = true
		go e.tell()
	}
}

func (e *events) tell() {
	for {
		e.mu.Lock()
		queue := e.queue
		e.queue = nil
		if len(queue) == 0 {
			e.telling = false
			e.mu.Unlock()
			return
		}
		e.mu.Unlock()
		for _, fn := range queue {
			fn()
		}
	}
}

// begin tells of the state in which a node starts.
func (e *events) begin(ev core.BreakerEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.toTracers(ev)
}

// toTracers queues ev. e.mu is locked.
func (e *events) toTracers(ev core.BreakerEvent) {
	for _, t := range e.tracers {
		e.push(func() { t.Breaker(ev) })
	}
}

// transition is called under the breaker's lock.
func (e *events) transition(n *node, from, to gobreaker.State, then func()) {
	ev := core.BreakerEvent{Backend: n.backend.Name(), Node: n.name, From: from.String(), To: to.String(), At: time.Now()}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.push(func() { n.log(from, to) })
	e.toTracers(ev)
	e.push(then)
}

// degraded queues a call of fn.
func (e *events) degraded(fn func(Degradation), d Degradation) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiting >= maxDegradations {
		e.missed++
		return
	}
	d.Missed, e.missed = e.missed, 0
	e.waiting++
	e.push(func() {
		e.mu.Lock()
		e.waiting--
		e.mu.Unlock()
		fn(d)
	})
}

// overlap logs that two processes hold key.
func (e *events) overlap(b *Backend, n *node, key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.push(func() {
		b.logger().Warn("latchkit: fallback: another process has taken a key that is held here since the backend was away",
			"backend", b.Name(), "node", n.name, "key", key)
	})
}

// Observe implements core.Observable: t is told of the breakers, first of the states that they are in. The backend
// behind the fallback hears of t as well.
func (b *Backend) Observe(t core.Tracer) {
	if o, ok := b.inner.(core.Observable); ok {
		o.Observe(t)
	}
	bt, ok := t.(core.BreakerTracer)
	if !ok {
		return
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	e := &b.events
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tracers = append(e.tracers, bt)
	for _, n := range b.nodes {
		ev := core.BreakerEvent{Backend: b.Name(), Node: n.name, To: n.current().String(), At: time.Now()}
		e.push(func() { bt.Breaker(ev) })
	}
}

// log logs a transition.
func (n *node) log(from, to gobreaker.State) {
	b := n.backend
	attrs := []slog.Attr{slog.String("backend", b.Name()), slog.String("node", n.name)}
	level, text := slog.LevelDebug, "latchkit: fallback: asking the backend whether it is back"
	switch {
	case to == gobreaker.StateClosed:
		level, text = slog.LevelInfo, "latchkit: fallback: the backend is back"
	case from == gobreaker.StateClosed:
		level, text = slog.LevelWarn, "latchkit: fallback: the backend cannot serve; locks are granted without it"
		attrs = append(attrs, slog.String("policy", b.settings.policy.String()))
		if err := n.lastFailure.Load(); err != nil {
			attrs = append(attrs, slog.Any("error", *err))
		}
	case to == gobreaker.StateOpen:
		text = "latchkit: fallback: the backend is still away"
	}
	b.logger().LogAttrs(context.Background(), level, text, attrs...)
}

// errands runs what belongs to no caller, so that Close can end it.
type errands struct {
	mu  sync.Mutex
	now *generation
}

// generation is the errands between two calls of Close.
type generation struct {
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// run runs fn in a goroutine; its context ends with Close.
func (e *errands) run(fn func(ctx context.Context)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now == nil {
		e.now = &generation{}
		e.now.ctx, e.now.cancel = context.WithCancel(context.Background())
	}
	g := e.now
	g.running.Add(1)
	go func() {
		defer g.running.Done()
		fn(g.ctx)
	}()
}

// stop ends what runs, and waits for it.
func (e *errands) stop() {
	e.mu.Lock()
	g := e.now
	e.now = nil
	e.mu.Unlock()
	if g != nil {
		g.cancel()
		g.running.Wait()
	}
}
