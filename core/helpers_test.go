package core_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
)

// newLocks returns an engine that is closed with the test.
func newLocks(t testing.TB, b core.Backend, opts ...core.Option) *core.Locks {
	t.Helper()
	locks, err := core.New(b, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		locks.Close(ctx)
	})
	return locks
}

func acquire(t testing.TB, l core.Locker, key string, opts ...core.Option) *core.Lease {
	t.Helper()
	lease, err := l.Acquire(context.Background(), key, opts...)
	if err != nil {
		t.Fatalf("acquire %q: %v", key, err)
	}
	return lease
}

func release(t testing.TB, lease *core.Lease) {
	t.Helper()
	if err := lease.Release(context.Background()); err != nil {
		t.Fatalf("release %q: %v", lease.Key(), err)
	}
}

func wantErr(t testing.TB, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Fatalf("got %v, want %v", err, target)
		}
	}
}

// eventually polls until ok, for at most limit.
func eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// scripted is a Backend in memory of which a test can bend each operation, before and after it is carried out.
type scripted struct {
	core.Backend
	mu     sync.Mutex
	before func(ctx context.Context, op *core.Op) (skip bool)
	after  func(op *core.Op)
	counts map[core.Action]int // by action; trips under 0
}

func newScripted() *scripted {
	return &scripted{Backend: core.Local(), counts: make(map[core.Action]int)}
}

func (s *scripted) Do(ctx context.Context, ops []*core.Op) {
	s.mu.Lock()
	before, after := s.before, s.after
	s.counts[0]++
	for _, op := range ops {
		s.counts[op.Action]++
	}
	s.mu.Unlock()
	for _, op := range ops {
		if before != nil && before(ctx, op) {
			continue
		}
		s.Backend.Do(ctx, []*core.Op{op})
		if after != nil {
			after(op)
		}
	}
}

func (s *scripted) set(before func(context.Context, *core.Op) bool, after func(*core.Op)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.after = before, after
}

func (s *scripted) count(a core.Action) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[a]
}

// whole is a scripted Backend that can do all that Local can.
type whole struct{ *scripted }

func (w whole) Watch(ctx context.Context, key string, wake func(by, next string)) (func(), error) {
	return w.Backend.(core.Watcher).Watch(ctx, key, wake)
}

func (w whole) Inspect(ctx context.Context, key string) (core.Info, error) {
	return w.Backend.(core.Inspector).Inspect(ctx, key)
}

func (w whole) ForceRelease(ctx context.Context, key string) error {
	return w.Backend.(core.Inspector).ForceRelease(ctx, key)
}

// held tells whether somebody has key in the store.
func (s *scripted) held(t testing.TB, key string) bool {
	t.Helper()
	info, err := s.Backend.(core.Inspector).Inspect(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	return info.Held
}

// hang has op fail when its trip's time is over.
func hang(ctx context.Context, op *core.Op) {
	deadline, _ := ctx.Deadline()
	time.Sleep(time.Until(deadline))
	down(op)
}

// down makes op fail as if the store were away.
func down(op *core.Op) {
	op.Verdict, op.Err = core.None, errors.Join(core.ErrUnavailable, errors.New("connection reset by the test"))
}

// commandCalls returns how often the server has carried out a command.
func commandCalls(t testing.TB, rdb *redis.Client, command string) int64 {
	t.Helper()
	info, err := rdb.Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(info, "cmdstat_"+command+":calls=")
	if !found {
		return 0
	}
	digits, _, _ := strings.Cut(rest, ",")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
