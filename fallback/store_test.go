package fallback

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/latchkit/latchkit/core"
)

// store is a backend whose faults are scripted: a core.Local that can be away in several ways.
type store struct {
	core.Backend
	mu    sync.Mutex
	fault func(ctx context.Context, op *core.Op) error // nil: none. It returns the error of an op, nil to serve it.
	late  bool                                         // operations are carried out, and their replies lost
	trips int
	seen  []core.Op // the requests, in order
}

func newStore() *store { return &store{Backend: core.Local()} }

func (s *store) Name() string { return "store" }

func (s *store) set(fault func(context.Context, *core.Op) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault, s.late = fault, false
}

func (s *store) loseReplies() {
	s.set(lost)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = true
}

func (s *store) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trips
}

// asked returns how many operations of a kind were asked for on key.
func (s *store) asked(a core.Action, key string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, op := range s.seen {
		if op.Action == a && op.Key == key {
			n++
		}
	}
	return n
}

// last is the last operation of a kind that was asked for on key.
func (s *store) last(a core.Action, key string) (last core.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, op := range s.seen {
		if op.Action == a && op.Key == key {
			last = op
		}
	}
	return last
}

func (s *store) Do(ctx context.Context, ops []*core.Op) {
	s.mu.Lock()
	s.trips++
	for _, op := range ops {
		s.seen = append(s.seen, *op)
	}
	fault, late := s.fault, s.late
	s.mu.Unlock()
	for _, op := range ops {
		if fault == nil {
			s.Backend.Do(ctx, []*core.Op{op})
			continue
		}
		err := fault(ctx, op)
		if err == nil || late {
			s.Backend.Do(ctx, []*core.Op{op})
		}
		if err != nil {
			op.Verdict, op.Err, op.Unsent = core.None, err, errors.Is(err, errRefused)
			op.Fence, op.Fenced = 0, 0
		}
	}
}

func (s *store) Watch(ctx context.Context, key string, wake func(by, next string)) (func(), error) {
	s.mu.Lock()
	fault := s.fault
	s.mu.Unlock()
	if fault != nil {
		if err := fault(ctx, &core.Op{}); err != nil {
			return nil, err
		}
	}
	return s.Backend.(core.Watcher).Watch(ctx, key, wake)
}

func (s *store) Inspect(ctx context.Context, key string) (core.Info, error) {
	return s.Backend.(core.Inspector).Inspect(ctx, key)
}

func (s *store) ForceRelease(ctx context.Context, key string) error {
	return s.Backend.(core.Inspector).ForceRelease(ctx, key)
}

var errRefused = errors.New("connection refused")

// down: nothing listens.
func down(context.Context, *core.Op) error {
	return fmt.Errorf("%w: %w", core.ErrUnavailable, errRefused)
}

// lost: no reply comes.
func lost(context.Context, *core.Op) error {
	return fmt.Errorf("%w: EOF", core.ErrUnavailable)
}

// hung: no reply comes until the trip's deadline, or its caller has ended.
func hung(ctx context.Context, _ *core.Op) error {
	deadline, _ := ctx.Deadline()
	for time.Now().Before(deadline) {
		if err := core.CallerEnded(ctx); err != nil {
			return fmt.Errorf("%w: %w", core.ErrUnavailable, err)
		}
		time.Sleep(min(time.Millisecond, time.Until(deadline)))
	}
	time.Sleep(time.Microsecond) // the context's own timer
	return fmt.Errorf("%w: i/o timeout", core.ErrUnavailable)
}

// full: what takes a lock is refused, what frees or keeps one is not.
func full(ctx context.Context, op *core.Op) error {
	if op.Action == core.Try {
		return fmt.Errorf("%w: OOM", core.ErrUnavailable)
	}
	return nil
}

const timeout = time.Second

// after is a breaker that opens after n failures in a row, for one second.
func after(n uint32) Option {
	return WithBreaker(gobreaker.Settings{Timeout: timeout, ReadyToTrip: func(c gobreaker.Counts) bool {
		return c.ConsecutiveFailures >= n
	}})
}

func wrap(t *testing.T, inner core.Backend, opts ...Option) *Backend {
	t.Helper()
	b := Wrap(inner, opts...).(*Backend)
	if err := b.Check(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func exclusive(key string) core.Hold { return core.Hold{Key: key, TTL: 10 * time.Second} }

// do makes a trip for one operation, under the engine's limit.
func do(b core.Backend, op *core.Op) *core.Op {
	ctx, cancel := context.WithTimeoutCause(context.Background(), 2*time.Second, core.ErrTripTimeout)
	defer cancel()
	b.Do(ctx, []*core.Op{op})
	return op
}

func try(b core.Backend, h core.Hold) *core.Op {
	return do(b, &core.Op{Action: core.Try, Hold: h, Owner: newOwner(), Fences: 1})
}

// again makes an operation on the hold that was granted by op.
func again(a core.Action, op *core.Op) *core.Op {
	return &core.Op{Action: a, Hold: op.Hold, Owner: op.Owner, Home: op.Home, Fences: 8}
}

// open opens the breaker of b.
func open(t *testing.T, b *Backend, s *store, fault func(context.Context, *core.Op) error) {
	t.Helper()
	s.set(fault)
	for range 100 {
		if b.State() == gobreaker.StateOpen {
			return
		}
		op := try(b, exclusive("opener"))
		if op.Err == nil {
			do(b, again(core.Release, op))
		}
	}
	t.Fatalf("the breaker is %v", b.State())
}

func want(t *testing.T, op *core.Op, v core.Verdict, degraded bool) {
	t.Helper()
	if op.Err != nil || op.Verdict != v || op.Degraded != degraded {
		t.Fatalf("%v %q: verdict %d, degraded %v, err %v; want verdict %d, degraded %v", op.Action, op.Key, op.Verdict,
			op.Degraded, op.Err, v, degraded)
	}
}
