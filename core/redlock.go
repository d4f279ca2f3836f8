package core

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedLock returns a Backend on 3 to 15 independent Redis servers: a lock is held while a majority of them say so, and
// stands as long as a majority lives. Each client must lead to a server of its own (or a Sentinel set of its own), all
// processes must be given the same servers, and a server must be Redis 6 or newer, or Valkey. The clients stay the
// caller's: they are neither closed nor changed.
//
// New contacts the nodes: a few round trips, and some seven node timeouts while one hangs. It fails when two clients lead
// to one server, and succeeds while nodes hang; they are enrolled when they answer.
//
// A node that has lost its memory (a restart without persistence or from a snapshot, FLUSHALL, a promoted replica) may
// have forgotten a lock. It grants nothing new until every lock that it may have forgotten has run out (see WithMaxTTL),
// while holders go on. All nodes losing their memory at once looks like a first start, after which two holders are
// possible; WithStrictRestart closes that gap too.
//
// What ReleaseAfter keeps for longer than the maximum TTL may end early when a majority of nodes has lost its memory
// meanwhile, one after the other.
//
// Holds are exclusive or shared: a reader and a writer cannot both have a majority, for two majorities share a node, and
// that refuses one of them. WithFair, WithLimit, WithReplicas and Lease.Export are an ErrInvalidOption.
//
// Source: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
func RedLock(nodes []redis.UniversalClient, opts ...RedLockOption) Backend {
	b := &redLock{timeout: DefaultNodeTimeout, maxTTL: DefaultMaxTTL}
	for _, o := range opts {
		if o != nil {
			o(b)
		}
	}
	if b.invalid == nil {
		b.invalid = checkNodes(nodes)
	}
	if b.invalid != nil {
		return b
	}
	b.quorum, b.maxMillis = len(nodes)/2+1, ceilMillis(b.maxTTL)
	for i, rdb := range nodes {
		b.nodes = append(b.nodes, newNode(b, i, rdb))
	}
	return b
}

const (
	// DefaultNodeTimeout bounds what one node of a RedLock may take, unless WithNodeTimeout says otherwise.
	DefaultNodeTimeout = 250 * time.Millisecond
	// DefaultMaxTTL is the longest TTL of a RedLock's locks, unless WithMaxTTL says otherwise.
	DefaultMaxTTL = time.Minute

	fewestNodes, mostNodes = 3, 15
)

// RedLockOption sets how a RedLock behaves.
type RedLockOption func(*redLock)

// WithNodeTimeout bounds what one node may take to answer: 1 ms to 10 s, 250 ms unless set, and never more than a
// quarter of a lock's TTL. A node that takes longer counts as silent.
func WithNodeTimeout(d time.Duration) RedLockOption {
	return func(b *redLock) {
		if d < time.Millisecond || d > 10*time.Second {
			b.refuse(invalid("WithNodeTimeout", d, "1ms to 10s"))
			return
		}
		b.timeout = d
	}
}

// WithMaxTTL sets the longest TTL that a lock may have, 10 ms to 24 h; 1 min unless set. More is ErrInvalidOption. It is
// also for how long a node that has lost its memory grants nothing: give the same to all processes.
func WithMaxTTL(d time.Duration) RedLockOption {
	return func(b *redLock) {
		if d < MinTTL || d > MaxTTL {
			b.refuse(invalid("WithMaxTTL", d, "10ms to 24h"))
			return
		}
		b.maxTTL = d
	}
}

// WithStrictRestart does not take nodes without memory for new ones, not even when all of them have none: the very first
// start, too, then waits for the maximum TTL. In exchange no restart of all nodes at once can bring a second holder.
func WithStrictRestart() RedLockOption { return func(b *redLock) { b.strict = true } }

// WithDurableNodes declares that the nodes write each command to disk before they answer (appendonly yes, appendfsync
// always) and are never restored from anything else, so that a restart forgets nothing. A node that comes back without
// its file has lost its memory all the same.
func WithDurableNodes() RedLockOption { return func(b *redLock) { b.durable = true } }

func (b *redLock) refuse(err error) {
	if b.invalid == nil {
		b.invalid = err
	}
}

// checkNodes refuses what cannot be a RedLock, as far as that can be told without a look at the servers.
func checkNodes(nodes []redis.UniversalClient) error {
	if len(nodes) < fewestNodes || len(nodes) > mostNodes {
		return fmt.Errorf("%w: RedLock of %d nodes: allowed are %d to %d independent servers", ErrInvalidOption,
			len(nodes), fewestNodes, mostNodes)
	}
	for i, rdb := range nodes {
		if isNil(rdb) {
			return fmt.Errorf("%w: RedLock: node %d is nil", ErrInvalidOption, i)
		}
		switch rdb.(type) {
		case *redis.ClusterClient, *redis.Ring:
			return fmt.Errorf("%w: RedLock: node %d is a %T: allowed is a client of one server", ErrInvalidOption, i, rdb)
		}
		for j := range i {
			if nodes[j] == rdb {
				return fmt.Errorf("%w: RedLock: nodes %d and %d are the same client", ErrInvalidOption, j, i)
			}
		}
	}
	return nil
}

// redLock is the Backend. A round asks all nodes at once and is decided by what a majority says; redlock_round.go has
// the verdicts, redlock_node.go a node and its queue, redlock_memory.go what becomes of a node without memory,
// redlock_fence.go why fences grow, redlock_debt.go how a node is tidied up.
type redLock struct {
	nodes     []*node
	quorum    int
	timeout   time.Duration
	maxTTL    time.Duration
	maxMillis string // maxTTL, for the script
	strict    bool
	durable   bool
	invalid   error

	proposal atomic.Int64 // the last fence that was proposed or seen
	clocks   atomic.Pointer[ClockTracer]
	judge    judge
	started  sync.Once // enrols the nodes, for a Backend that is used without New
	running  runners   // goroutines of nodes and of the judge
}

// Check implements what New asks for: it enrols the nodes that answer.
func (b *redLock) Check() error {
	if b.invalid != nil {
		return b.invalid
	}
	b.started.Do(func() {})
	return b.enrol()
}

func (*redLock) Name() string        { return "redlock" }
func (*redLock) Route(string) string { return "" }

// Supports implements Supporter.
func (b *redLock) Supports(h Hold) error {
	switch {
	case h.Join != "":
		return fmt.Errorf("%w: Export: the nodes of a RedLock count no holds", ErrInvalidOption)
	case h.Fair:
		return fmt.Errorf("%w: WithFair: the nodes of a RedLock have no common order of arrival", ErrInvalidOption)
	case h.Replicas > 0:
		return fmt.Errorf("%w: WithReplicas: the nodes of a RedLock stand for themselves", ErrInvalidOption)
	case h.Kind == Limited:
		return fmt.Errorf("%w: WithLimit: two majorities of a RedLock's nodes share one, but three need not: they cannot count", ErrInvalidOption)
	}
	return b.bounded(h.TTL)
}

func (b *redLock) bounded(ttl time.Duration) error {
	if ttl > b.maxTTL {
		return fmt.Errorf("%w: a TTL of %v under a RedLock: allowed is up to %v, see WithMaxTTL", ErrInvalidOption, ttl,
			b.maxTTL)
	}
	return nil
}

// Do implements Backend. All operations go to all nodes, in one script call for each node; a second round follows for
// the few whose fence must be written back.
func (b *redLock) Do(ctx context.Context, ops []*Op) {
	b.started.Do(func() { _ = b.enrol() }) // of two nodes that are one server, one is not used
	rounds := make([]*round, 0, len(ops))
	for _, op := range ops {
		if op.Err = b.refuses(op); op.Err != nil {
			op.Unsent = true
			continue
		}
		rounds = append(rounds, b.newRound(op))
	}
	for len(rounds) > 0 {
		b.send(rounds)
		b.await(ctx, rounds)
		var next []*round
		for _, r := range rounds {
			if again := r.conclude(); again != nil {
				next = append(next, again)
			}
		}
		rounds = next
	}
}

// refuses returns why op cannot be carried out, whatever the nodes say.
func (b *redLock) refuses(op *Op) error {
	switch op.Action {
	case Try:
		return b.Supports(op.Hold)
	case Extend:
		return b.bounded(op.TTL)
	}
	return nil
}

// send hands the rounds to all nodes, so that those of one call meet in one batch.
func (b *redLock) send(rounds []*round) {
	errands := make([]errand, len(rounds))
	for i, r := range rounds {
		errands[i] = r
	}
	for _, n := range b.nodes {
		n.push(errands)
	}
}

// await returns when every round is decided: by the nodes, by its time, or by the end of ctx.
func (b *redLock) await(ctx context.Context, rounds []*round) {
	var timer *time.Timer
	for _, r := range rounds {
		select {
		case <-r.done:
			continue
		default:
		}
		if timer == nil {
			timer = time.NewTimer(time.Until(r.limit))
			defer timer.Stop()
		} else {
			timer.Reset(time.Until(r.limit))
		}
		select {
		case <-r.done:
		case <-timer.C:
			r.close(nil)
		case <-ctx.Done():
			r.close(context.Cause(ctx))
		}
	}
}

// Observe implements Observable.
func (b *redLock) Observe(t Tracer) {
	if c, ok := t.(ClockTracer); ok {
		b.clocks.Store(&c)
	}
}

// Probe implements Prober: a majority of nodes can be written to.
func (b *redLock) Probe(ctx context.Context, _ string) error {
	return b.ask(ctx, "p", "").outcome()
}

// Close implements Closer: what the nodes are owed is tried once more, and then left to its TTL. It takes a few node
// timeouts at most, also when another engine goes on using the Backend.
func (b *redLock) Close() error {
	for _, n := range b.nodes {
		n.hub.close()
		n.payNow()
	}
	b.running.wait(max(tripLimit, 4*b.timeout))
	for _, n := range b.nodes {
		n.forgive()
	}
	return nil
}

// runners counts goroutines. Unlike a WaitGroup it may grow while somebody waits for the last.
type runners struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n is 0 again
}

func (r *runners) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n++; r.n == 1 {
		r.idle = make(chan struct{})
	}
}

func (r *runners) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n--; r.n == 0 {
		close(r.idle)
	}
}

// wait returns when there are none, or after limit.
func (r *runners) wait(limit time.Duration) {
	r.mu.Lock()
	n, idle := r.n, r.idle
	r.mu.Unlock()
	if n == 0 {
		return
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C:
	}
}
