package otellock

import (
	"context"
	"testing"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
	"go.opentelemetry.io/otel/codes"
)

// From a slow request to the one that held it up, and from a lost lock to its request.

func TestServedWaiterIsLinkedToItsHolder(t *testing.T) {
	server := redistest.Start(t)
	here, there := newLab(t, WithHolderLink()), newLab(t, WithHolderLink())
	locks := here.locks(core.Redis(server.Client()))
	for name, c := range map[string]struct {
		waiter *lab
		locks  core.Locker
	}{
		"in the same process": {here, locks},
		"in another":          {there, there.locks(core.Redis(server.Client()))},
	} {
		holder := mustAcquire(t, locks, context.Background(), name)
		acquires := here.named("lock.acquire")
		by := acquires[len(acquires)-1].SpanContext()
		served := c.waiter.waiter(c.locks, context.Background(), name)
		holder.Release(context.Background())
		if err := <-served; err != nil {
			t.Fatal(err)
		}
		acquires = c.waiter.named("lock.acquire")
		last := acquires[len(acquires)-1]
		has(t, last, attrOutcome.String("acquired"))
		linked(t, last, linkHolder, by)
	}
}

func TestReleaseOfALostLeaseIsInItsTrace(t *testing.T) {
	l := newLab(t)
	locks := l.locks(core.Local())
	ctx, request := l.tp.Tracer("test").Start(context.Background(), "request")
	lease := mustAcquire(t, locks, ctx, "k")
	if err := locks.ForceRelease(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	lease.Release(ctx)
	request.End()
	s := l.span("lock.release")
	has(t, s, attrErrorType.String("lost"))
	if s.Status().Code != codes.Error || s.Parent().SpanID() != request.SpanContext().SpanID() {
		t.Errorf("status %v, parent %v", s.Status(), s.Parent())
	}
}
