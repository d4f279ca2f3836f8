package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Locks is the lock engine over a Backend. It queues the callers of this process per key, waits, renews, hands on,
// and retries. All methods may be called concurrently. Make one per process and backend, and Close it at the end.
type Locks struct {
	backend  Backend
	settings settings
	id       string // names this engine among those that wait for a key

	clock    clock
	gates    *gates
	trips    *trips
	watchdog *watchdog
	undo     *undoer
	live     tally // tenures held
	losses   losses

	acquisitions sync.Pool // of *acquisition: see recycle
	ops          sync.Pool // of *Op: for releases
}

// New returns an engine over b. opts are the defaults of every Acquire. It contacts nothing, but for
// the nodes of a RedLock, and succeeds while Redis is down; a Backend that was built from unusable parts fails here.
//
// Errors: ErrInvalidOption, which names the option and what is allowed.
func New(b Backend, opts ...Option) (*Locks, error) {
	if b == nil {
		return nil, fmt.Errorf("%w: New(nil): allowed is a Backend", ErrInvalidOption)
	}
	s, err := defaults().with(opts)
	if err != nil {
		return nil, err
	}
	if c, ok := b.(interface{ Check() error }); ok {
		if err := c.Check(); err != nil {
			return nil, err
		}
	}
	if o, ok := b.(Observable); ok && s.tracer != nil {
		o.Observe(s.tracer)
	}
	locks := &Locks{backend: b, settings: s, id: newToken()[:16], clock: clock{time.Now()}, gates: newGates()}
	locks.acquisitions.New = func() any { return new(acquisition) }
	locks.ops.New = func() any { return new(Op) }
	locks.live.closing, locks.live.empty = make(chan struct{}), make(chan struct{})
	locks.undo = newUndoer(locks)
	locks.trips = newTrips(b, locks.undo)
	locks.watchdog = newWatchdog(locks)
	return locks, nil
}

// Acquire takes a lease on key.
//
// It tries once unless WithWait says otherwise, and returns at the first of: acquired, wait spent, ctx ended. ctx is
// the lease's lifetime too: the lease's context is its child. An Acquire under the context of a lease on the same key
// succeeds at once, with the same fence, and is counted: the key is free with the last Release. TTL, renewal and label are
// those of the hold then; a reader, or a holder of a permit, who asks for another kind of hold gets ErrInvalidOption.
//
// Errors: ErrNotAcquired (a *NotAcquiredError) when somebody else holds the key, joined with ctx's error when that
// ended the wait; ErrUnavailable when the backend could not serve; ErrConflict, ErrDenied, ErrInvalidKey,
// ErrInvalidOption, ErrTooManyWaiters, ErrClosed; ErrLost when the lease that it re-enters was lost; ctx's error.
func (locks *Locks) Acquire(ctx context.Context, key string, opts ...Option) (*Lease, error) {
	s := locks.settings
	if len(opts) > 0 {
		var err error
		if s, err = s.with(opts); err != nil {
			return nil, err
		}
	}
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if err := locks.refusedHere(ctx, key, &s); err != nil {
		return nil, err
	}
	a := newAcquisition(ctx, locks, key, s)
	if sup, ok := locks.backend.(Supporter); ok {
		if err := sup.Supports(a.want); err != nil {
			return nil, err
		}
	} else if a.want.Replicas > 0 {
		return nil, fmt.Errorf("%w: WithReplicas: the backend %q has none", ErrInvalidOption, locks.backend.Name())
	}
	if s.tracer == nil {
		lease, err := a.acquire()
		a.recycle()
		return lease, err
	}
	return a.traced()
}

// refusedHere is the short way for the most frequent refusal: a duplicate that may not wait and meets a holder in its own
// process. nil: the long way decides.
func (locks *Locks) refusedHere(ctx context.Context, key string, s *settings) error {
	if s.wait > 0 || s.tracer != nil || s.kind != Exclusive || s.fair || s.replicas > 0 || ctx.Err() != nil {
		return nil
	}
	name := s.prefix + key
	shard := locks.gates.shard(name)
	shard.Lock()
	g := shard.gates[name]
	if g == nil || g.open() || locks.live.isClosed() {
		shard.Unlock()
		return nil
	}
	busy := g.busy(key, locks.clock.now())
	shard.Unlock()
	if _, inside := FromContext(ctx); inside || carriedFor(ctx, name) != nil {
		return nil // it may be the holder itself
	}
	return busy
}

// reenter counts one more lease on the hold of outer.
func (locks *Locks) reenter(a *acquisition, outer *Lease) (*Lease, error) {
	h, t := outer.hold, outer.hold.tenure
	if err := a.within(t.want.Kind); err != nil {
		return nil, err
	}
	lease := &Lease{locks: locks, hold: h, key: a.key, parent: a.ctx, outer: a.outer}
	t.gate.shard.Lock()
	defer t.gate.shard.Unlock()
	if locks.live.isClosed() {
		return nil, ErrClosed
	}
	if t.hold != h || h.ended || !t.live(locks.clock.now()) {
		return nil, lossError("%q ended while it was re-entered", a.key)
	}
	h.count++
	// The first stays first: it is the lease that began the hold.
	lease.sibling, h.leases.sibling = h.leases.sibling, lease
	lease.bound(a.maxHold)
	return lease, nil
}

// within refuses what cannot be had inside a hold of kind: a reader who waits for others to leave, himself among them,
// waits for ever.
func (a *acquisition) within(kind Kind) error {
	if kind == Exclusive || kind == a.want.Kind {
		return nil
	}
	return fmt.Errorf("%w: %q is held %v by this caller, which cannot become %v: release it first (%w)",
		ErrInvalidOption, a.key, kind, a.want.Kind, &NotAcquiredError{Key: a.key})
}

// bound starts the timer of WithMaxHold. The shard is locked.
func (l *Lease) bound(maxHold time.Duration) {
	if maxHold > 0 {
		l.maxTimer = time.AfterFunc(maxHold, l.overdue)
	}
}

// unbound stops it. The shard is locked.
func (l *Lease) unbound() {
	if l.maxTimer != nil {
		l.maxTimer.Stop()
	}
}

// Close ends the engine: new Acquires and those that wait say ErrClosed, and the contexts of all leases end with that
// cause. It then waits until every lease is released. When ctx ends first it frees what is left, in at most 2 s more,
// and returns ctx's error; those leases are lost. The client given to the Backend stays open. Close may be called
// more than once.
func (locks *Locks) Close(ctx context.Context) error {
	locks.live.close()
	for _, t := range locks.shut() {
		t.finishAll(ErrClosed)
	}
	err := locks.live.wait(ctx)
	locks.undo.bound(time.Now().Add(tripLimit))
	if err != nil {
		locks.freeAll()
		err = fmt.Errorf("latchkit: close: leases were held still and are freed: %w", err)
	}
	locks.undo.close()
	locks.watchdog.close()
	if c, ok := locks.backend.(Closer); ok {
		err = errors.Join(err, c.Close())
	}
	return err
}

// shut turns away everyone who waits, and returns what is held.
func (locks *Locks) shut() []*tenure {
	var all []*tenure
	for i := range locks.gates.shards {
		s := &locks.gates.shards[i]
		s.Lock()
		for _, g := range s.gates {
			all = append(all, g.tenures...)
			g.fail(ErrClosed, 0)
			if g.watch != nil { // or Close of the Backend would serve it on
				g.watch.stop()
				g.watch = nil
			}
			g.advance()
		}
		s.Unlock()
	}
	return all
}

// finishAll ends the contexts of all leases of the tenure; it stays held.
func (t *tenure) finishAll(cause error) {
	var leases []*Lease
	t.gate.shard.Lock()
	if t.hold != nil {
		for l := t.hold.leases; l != nil; l = l.sibling {
			leases = append(leases, l)
		}
	}
	t.gate.shard.Unlock()
	for _, l := range leases {
		l.finish(cause)
	}
}

// freeAll frees what is held still. The leases are lost.
func (locks *Locks) freeAll() {
	var wg sync.WaitGroup
	for _, t := range locks.shut() {
		t.gate.shard.Lock()
		if t.state != held && t.state != parked {
			t.gate.shard.Unlock()
			continue
		}
		after := t.lose("closed", fmt.Errorf("%w: freed by Close: %w", ErrLost, ErrClosed))
		t.gate.shard.Unlock()
		after()
		wg.Add(1)
		go func() {
			defer wg.Done()
			_, _ = locks.free(context.Background(), t, 0) // what fails is left to the TTL
		}()
	}
	wg.Wait()
}

// Inspect tells who holds key, as the backend knows it now: one trip, of 2 s at most. It takes nothing and changes
// nothing.
//
// Errors: ErrUnavailable, ErrDenied, ErrConflict when what stands there is no lock, ErrInvalidKey, and ErrInvalidOption
// for a Backend that cannot tell.
func (locks *Locks) Inspect(ctx context.Context, key string) (Info, error) {
	inspector, err := locks.inspector(key)
	if err != nil {
		return Info{}, err
	}
	info, err := inspector.Inspect(ctx, locks.settings.prefix+key)
	info.Key, info.Backend = key, locks.backend.Name()
	if err != nil {
		return info, fmt.Errorf("latchkit: inspect %q: %w", key, err)
	}
	locks.overlay(&info)
	return info, nil
}

// overlay adds what only this process knows: which fence of the reservation is in use, and since when.
func (locks *Locks) overlay(info *Info) {
	shard := locks.gates.shard(locks.settings.prefix + info.Key)
	shard.Lock()
	defer shard.Unlock()
	g := shard.gates[locks.settings.prefix+info.Key]
	if g == nil {
		return
	}
	for _, t := range g.tenures {
		if t.hold == nil {
			continue
		}
		for i := range info.Holders {
			// A tenure's first fence is what the backend knows.
			h := &info.Holders[i]
			if h.Fence != 0 && h.Fence == t.first || slices.Contains(h.fences, t.first) {
				h.Here, h.Fence, h.Since = true, t.hold.fence, restated(t.hold.began)
				h.Count = max(h.Count, t.hold.count)
			}
		}
	}
}

// ForceRelease takes key away from whoever holds it; for an operator. The holder's lease is lost: at once when it is
// held here, else with its next renewal (or its end, when it is not renewed), until which it goes on working. A cooldown
// ends as well. A key that nobody holds is no error; errors are those of Inspect.
func (locks *Locks) ForceRelease(ctx context.Context, key string) error {
	inspector, err := locks.inspector(key)
	if err != nil {
		return err
	}
	shard := locks.gates.shard(locks.settings.prefix + key)
	shard.Lock()
	var here []*tenure // as it is now: who gets the key afterwards has done nothing
	if g := shard.gates[locks.settings.prefix+key]; g != nil {
		here = append(here, g.tenures...)
	}
	shard.Unlock()
	if err := inspector.ForceRelease(ctx, locks.settings.prefix+key); err != nil {
		return fmt.Errorf("latchkit: force release %q: %w", key, err)
	}
	shard.Lock()
	var afters []func()
	for _, t := range here {
		afters = append(afters, t.lose("forced", lossError("%q was released by force", key)))
	}
	shard.Unlock()
	for _, after := range afters {
		after()
	}
	return nil
}

func (locks *Locks) inspector(key string) (Inspector, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	inspector, ok := locks.backend.(Inspector)
	if !ok {
		return nil, fmt.Errorf("%w: the backend %q cannot inspect", ErrInvalidOption, locks.backend.Name())
	}
	return inspector, nil
}

// tally counts the tenures held, and lets Close wait for the last.
type tally struct {
	mu      sync.Mutex
	n       int
	closed  atomic.Bool   // set under mu
	closing chan struct{} // closed when closed is set
	empty   chan struct{} // closed when n is 0 as well
}

// add counts one more, unless the engine is closed. It is called with the shard locked under which the tenure becomes
// visible, so that Close, which closes the tally before it goes through the shards, finds all that were counted.
func (c *tally) add() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Load() {
		return false
	}
	c.n++
	return true
}

func (c *tally) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
	if c.n == 0 && c.closed.Load() {
		close(c.empty)
	}
}

func (c *tally) isClosed() bool { return c.closed.Load() }

func (c *tally) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Swap(true) {
		return
	}
	close(c.closing)
	if c.n == 0 {
		close(c.empty)
	}
}

func (c *tally) wait(ctx context.Context) error {
	select {
	case <-c.empty:
		return nil
	default:
	}
	select {
	case <-c.empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
