package grpclock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/admit"
)

// UnaryServerInterceptor locks each call by its key while the handler runs. It panics when key is nil or an option is
// out of range.
func UnaryServerInterceptor(key KeyFunc, opts ...Option) grpc.UnaryServerInterceptor {
	d := newDoor("UnaryServerInterceptor", key, opts)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		ctx = d.owners.receive(ctx)
		if !d.guards(info.FullMethod) {
			return handler(ctx, req)
		}
		lease, verdict := d.enter(ctx, info.FullMethod, req)
		if verdict != nil {
			return nil, refuse(ctx, verdict, unaryTrailer(ctx))
		}
		success := false // a panic leaves it so
		defer func() { d.guard.Leave(ctx, lease, success) }()
		resp, err = handler(admit.Context(ctx, lease), req)
		success = d.succeeded(ctx, resp, err)
		if lost := d.lost(ctx, lease, err); lost != nil {
			return nil, refuse(ctx, lost, unaryTrailer(ctx))
		}
		return resp, err
	}
}

// StreamServerInterceptor locks each stream by its key: before the handler runs when the key is in the metadata, else
// with the first message that the handler receives; see "Streams" above. It panics when key is nil or an option is out
// of range.
func StreamServerInterceptor(key KeyFunc, opts ...Option) grpc.StreamServerInterceptor {
	d := newDoor("StreamServerInterceptor", key, opts)
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if !d.guards(info.FullMethod) {
			return handler(srv, d.owners.receiveStream(ss))
		}
		s := newLockedStream(d, ss, info.FullMethod)
		defer s.leave()
		if !d.key.needsMessage(info.FullMethod) {
			if err := s.enter(nil); err != nil {
				return err
			}
		}
		return s.answer(handler(srv, s))
	}
}

// door is what both interceptors share.
type door struct {
	guard     admit.Guard
	key       source
	methods   map[string]bool // nil: all
	perMethod bool
	success   func(ctx context.Context, resp any, err error) bool // nil: OK
	owners    owners
}

func newDoor(where string, key KeyFunc, opts []Option) *door {
	d := &door{key: sourceOf(where, key)}
	for _, o := range opts {
		if o != nil {
			o(d)
		}
	}
	return d
}

func (d *door) guards(method string) bool { return d.methods == nil || d.methods[method] }

// enter takes the call's key. Neither a lease nor a verdict: the call passes unlocked.
func (d *door) enter(ctx context.Context, method string, req any) (*core.Lease, *admit.Verdict) {
	key, err := readKey(ctx, d.key, method, req)
	if err != nil {
		return d.keyless(ctx, method, err)
	}
	if d.perMethod {
		key = method + " " + key
	}
	return d.guard.Enter(ctx, key)
}

// keyless decides on a call whose key cannot be read.
func (d *door) keyless(ctx context.Context, method string, err error) (*core.Lease, *admit.Verdict) {
	if errors.Is(err, errUnlocked) || infrastructure(method) {
		return nil, nil
	}
	return nil, d.guard.RefuseKey(ctx, err)
}

// infrastructure tells whether method is one of gRPC's own services, which a server-wide interceptor meets too.
func infrastructure(method string) bool {
	return strings.HasPrefix(method, "/grpc.health.") ||
		strings.HasPrefix(method, "/grpc.reflection.") ||
		strings.HasPrefix(method, "/grpc.channelz.")
}

// succeeded tells whether the answer starts the cooldown.
func (d *door) succeeded(ctx context.Context, resp any, err error) bool {
	if d.success == nil {
		return err == nil
	}
	return d.guard.Cooldown > 0 && d.success(ctx, resp, err)
}

// lost is the verdict on a handler that returned err because its lease had ended; nil for any other.
func (d *door) lost(ctx context.Context, lease *core.Lease, err error) *admit.Verdict {
	if err == nil || lease == nil {
		return nil
	}
	if status.Code(err) == codes.Canceled && !errors.Is(err, context.Canceled) {
		// The handler returns what another server told it, or has turned its context's error into a status.
		err = fmt.Errorf("%w: %w", context.Canceled, err)
	}
	return d.guard.Lost(ctx, lease, err)
}

// unaryTrailer sets a trailer as far as there is a transport that carries it.
func unaryTrailer(ctx context.Context) func(metadata.MD) {
	return func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) }
}
