package fallback

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/latchkit/latchkit/core"
)

// node is one node of the backend and its breaker.
//
// Callers read state and never ask the breaker, since asking one that is due moves it to half-open: only the probe
// does. Locks are taken in the order breaker, node.mu, and never the other way round.
type node struct {
	backend *Backend
	name    string
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	timeout time.Duration // of the open state

	state       atomic.Int32 // gobreaker.State, as the breaker last told
	stuck       atomic.Bool  // the last trip with a Try in it failed
	deaf        atomic.Bool  // while open, a release found that the backend does not answer
	lastFailure atomic.Pointer[error]
	resting     atomic.Bool // Close was called, and nobody has needed the node since

	mu       sync.Mutex
	timer    *time.Timer // the next probe
	openedAt time.Time   // when the breaker left closed
	debts    debts
}

const (
	// probeLimit bounds a probe. It is part of how long recovery takes.
	probeLimit = 750 * time.Millisecond
	probeTTL   = time.Second
	// defaultTimeout is what gobreaker makes of none.
	defaultTimeout = 60 * time.Second
)

func newNode(b *Backend, name string) *node {
	n := &node{backend: b, name: name, timeout: b.settings.breaker.Timeout}
	if n.timeout <= 0 {
		n.timeout = defaultTimeout
	}
	st := b.settings.breaker
	if name != "" {
		st.Name = st.Name + "/" + name
	}
	given := st.OnStateChange
	st.OnStateChange = func(called string, from, to gobreaker.State) { n.changed(called, from, to, given) }
	// What counts is decided before the breaker's lock is taken.
	st.IsExcluded = func(err error) bool { return err == errNoSample }
	st.IsSuccessful = func(err error) bool { return err == nil }
	n.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](st)
	return n
}

func (n *node) closed() bool { return n.current() == gobreaker.StateClosed }

func (n *node) current() gobreaker.State { return gobreaker.State(n.state.Load()) }

// changed is called by the breaker under its lock, in order.
func (n *node) changed(name string, from, to gobreaker.State, given func(string, gobreaker.State, gobreaker.State)) {
	n.state.Store(int32(to))
	switch to {
	case gobreaker.StateOpen:
		n.deaf.Store(false)
		if from == gobreaker.StateClosed {
			n.mu.Lock()
			n.openedAt = time.Now()
			n.mu.Unlock()
		}
		n.probeAfter(n.timeout)
	case gobreaker.StateClosed:
		n.stuck.Store(false)
	}
	n.backend.events.transition(n, from, to, func() {
		if given != nil {
			given(name, from, to)
		}
	})
	if from == gobreaker.StateClosed || to == gobreaker.StateClosed {
		n.backend.errands.run(n.cross)
	}
}

// cross does what a change of sides asks for: whoever waits looks again, and what was granted or owed meanwhile is told
// to a backend that is back.
func (n *node) cross(ctx context.Context) {
	n.backend.watches.wakeNode(n)
	if !n.closed() {
		return
	}
	for at, grants := range n.backend.byNode(n.backend.ledger.strangers(n, time.Now())) {
		at.promote(ctx, grants)
	}
	n.payDebts(ctx)
	n.backend.watches.attach(ctx, n)
}

// draining tells for how long local grants have to wait still.
func (n *node) draining(now time.Time) time.Duration {
	if n.backend.settings.drain == 0 {
		return 0
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return max(0, n.openedAt.Add(n.backend.settings.drain).Sub(now))
}

// probeAfter sets the timer of the next probe, unless it is set.
func (n *node) probeAfter(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.timer != nil || n.resting.Load() {
		return
	}
	n.timer = time.AfterFunc(d, func() {
		n.mu.Lock()
		n.timer = nil
		n.mu.Unlock()
		n.backend.errands.run(n.probe)
	})
}

// rest stops the timers until the node is next asked for something.
func (n *node) rest() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
	n.debts.rest()
	n.resting.Store(true)
}

// wakeProbe makes sure that somebody looks after a breaker that is not closed: Close may have stopped that.
func (n *node) wakeProbe() {
	if n.resting.CompareAndSwap(true, false) {
		n.probeAfter(n.timeout)
	}
}

// probe asks a node whose breaker is due whether it can serve, until the breaker closes or opens again. It runs in the
// background and on its own limit: neither contention nor a caller that leaves can keep the slot.
func (n *node) probe(ctx context.Context) {
	pause := time.Millisecond // a hair too early, or another probe is under way
	for ctx.Err() == nil {
		done, err := n.breaker.Allow()
		if err != nil {
			break
		}
		sample := errNoSample
		if n.breaker.State() == gobreaker.StateHalfOpen {
			sample = n.probeSample(ctx)
		}
		done(sample)
		if n.current() != gobreaker.StateHalfOpen {
			return // if it is open, the next is set
		}
		if sample == errNoSample {
			pause = n.timeout
			break
		}
	}
	if ctx.Err() == nil {
		n.probeAfter(pause)
	}
}

// probeSample makes one probe.
func (n *node) probeSample(ctx context.Context) error {
	trip, cancel := context.WithTimeoutCause(ctx, probeLimit, core.ErrTripTimeout)
	defer cancel()
	err := n.ask(trip)
	switch n.outcome(err, core.CallerEnded(trip) != nil) {
	case failed:
		n.lastFailure.Store(&err)
		return err
	case excluded:
		return errNoSample
	}
	return nil
}

// ask writes to a key that no user has.
func (n *node) ask(ctx context.Context) error {
	if p, ok := n.backend.inner.(core.Prober); ok {
		return p.Probe(ctx, n.name)
	}
	op := &core.Op{Action: core.Try, Owner: newOwner(), Fences: 1,
		Hold: core.Hold{Key: n.probeKey(), TTL: probeTTL, Label: "probe"}}
	n.backend.inner.Do(ctx, []*core.Op{op})
	if op.Err == nil && op.Verdict == core.Granted {
		free := &core.Op{Action: core.Release, Owner: op.Owner, Hold: op.Hold, Home: op.Home}
		n.backend.inner.Do(ctx, []*core.Op{free}) // or its TTL does
	}
	return op.Err
}

// probeKey is a key on this node under the prefix that no user's key can have. It is another one each time: what is left
// of the probe before would be a holder, and a refusal is an answer, also of a RedLock without a quorum.
func (n *node) probeKey() (key string) {
	const tries = 4096 // enough for any number of nodes
	for i := 0; i < tries; i++ {
		if key = "latchkit~probe:" + newOwner(); n.backend.inner.Route(key) == n.name {
			break
		}
	}
	return key
}

func newOwner() string {
	var raw [16]byte
	rand.Read(raw[:]) // never fails; see its documentation
	return hex.EncodeToString(raw[:])
}

var errNoSample = errors.New("latchkit: fallback: no sample")
