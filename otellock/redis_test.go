package otellock

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// These tests run two engines, as two processes have them, over a real Redis.

func TestRedisHolderLink(t *testing.T) {
	server := redistest.Start(t)
	here, there := newLab(t, WithHolderLink()), newLab(t, WithHolderLink())
	holder := mustAcquire(t, here.locks(core.Redis(server.Client())), context.Background(), "k")
	by := here.span("lock.acquire").SpanContext()

	if _, err := there.locks(core.Redis(server.Client())).Acquire(context.Background(), "k"); !errors.Is(err, core.ErrNotAcquired) {
		t.Fatal(err)
	}
	linked(t, there.span("lock.acquire"), linkHolder, by)
	holder.Release(context.Background())
}

func TestRedisCommandsAreChildrenOfTheAcquire(t *testing.T) {
	server := redistest.Start(t)
	l := newLab(t)
	rdb := server.NewClient(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	seen := new(hook)
	rdb.AddHook(seen)
	lease := mustAcquire(t, l.locks(core.Redis(rdb)), context.Background(), "k")
	lease.Release(context.Background())
	for _, name := range []string{"lock.acquire", "lock.release"} {
		if id := l.span(name).SpanContext().SpanID(); !seen.under(id) {
			t.Errorf("a hook of the client has seen no command under %s", name)
		}
	}
}

func TestRedisHasNoNoteUnlessAsked(t *testing.T) {
	server := redistest.Start(t)
	l := newLab(t)
	rdb := server.Client()
	lease := mustAcquire(t, l.locks(core.Redis(rdb)), context.Background(), "k")
	id := l.span("lock.acquire").SpanContext().TraceID().String()
	keys := rdb.Keys(context.Background(), "*").Val()
	if len(keys) == 0 {
		t.Fatal("no keys to look into")
	}
	for _, key := range keys {
		if strings.Contains(rdb.Dump(context.Background(), key).Val(), id) {
			t.Errorf("%s has the trace's id in it", key)
		}
	}
	lease.Release(context.Background())
}

// T5.
func TestRedisLoss(t *testing.T) {
	server := redistest.Start(t)
	l := newLab(t)
	rdb := server.Client()
	lease := mustAcquire(t, l.locks(core.Redis(rdb)), context.Background(), "k", core.WithTTL(300*time.Millisecond))
	if err := rdb.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	<-lease.Context().Done()
	eventually(t, "the loss", func() bool { n, _ := l.sum("latchkit.lost", attrReason.String("deleted")); return n == 1 })
	renew := l.span("lock.renew")
	has(t, renew, attrErrorType.String("lost"))
	if renew.Status().Code != codes.Error {
		t.Errorf("status %v", renew.Status())
	}
	if n, _ := l.sum("latchkit.lost"); n != 1 {
		t.Errorf("lost %d", n)
	}
	l.quiet()
}

func TestRedisDown(t *testing.T) {
	server := redistest.Start(t)
	l := newLab(t)
	locks := l.locks(core.Redis(server.NewClient(func(o *redis.Options) { o.DialTimeout = 200 * time.Millisecond })))
	server.Kill()
	if _, err := locks.Acquire(context.Background(), "k"); !errors.Is(err, core.ErrUnavailable) {
		t.Fatal(err)
	}
	s := l.span("lock.acquire")
	has(t, s, attrOutcome.String("error"), attrErrorType.String("unavailable"))
	if got, want := s.Status().Description, "latchkit: backend unavailable: connection refused"; got != want {
		t.Errorf("description %q, want %q", got, want)
	}
	if n, _ := l.sum("latchkit.contentions"); n != 0 {
		t.Errorf("%d contentions", n)
	}
}

// hook notes under which span each command runs, as redisotel does.
type hook struct {
	mu  sync.Mutex
	ids []trace.SpanID
}

func (h *hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.mu.Lock()
		h.ids = append(h.ids, trace.SpanContextFromContext(ctx).SpanID())
		h.mu.Unlock()
		return next(ctx, cmd)
	}
}

func (*hook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (*hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *hook) under(id trace.SpanID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, seen := range h.ids {
		if seen == id {
			return true
		}
	}
	return false
}
