package grpclock

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/admit"
)

// lockedStream is a stream that takes its lock at the first message, or before the handler. The handler may receive
// in one goroutine, send in another, and return while both still run.
type lockedStream struct {
	grpc.ServerStream
	door    *door
	method  string
	parent  context.Context         // the lease's parent; ends with the lease too, for a handler that took it early
	end     context.CancelCauseFunc // of parent
	asked   bool                    // enter was called; of the receiving goroutine only
	success bool                    // the handler's answer starts the cooldown; of the handler's goroutine only

	mu      sync.Mutex
	ctx     context.Context // the handler's
	lease   *core.Lease
	unwatch func() bool
	refusal error
	left    bool
}

func newLockedStream(d *door, ss grpc.ServerStream, method string) *lockedStream {
	s := &lockedStream{ServerStream: ss, door: d, method: method}
	s.parent, s.end = context.WithCancelCause(d.owners.receive(ss.Context()))
	s.ctx = s.parent
	return s
}

// Context is the lease's once there is one.
func (s *lockedStream) Context() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ctx
}

// RecvMsg locks at the first message, before the handler sees it.
func (s *lockedStream) RecvMsg(m any) error {
	if err := s.refused(); err != nil {
		return err
	}
	err := s.ServerStream.RecvMsg(m)
	if s.asked {
		return err
	}
	switch {
	case err == nil:
		return s.enter(m)
	case errors.Is(err, io.EOF):
		return s.keyless(err)
	}
	return err // the call has broken off; the handler has nothing to work on
}

// SendMsg sends nothing after a refusal, for the client would take what it gets first as the answer.
func (s *lockedStream) SendMsg(m any) error {
	if err := s.refused(); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

// SendHeader sends nothing after a refusal: a client retries only a call that was answered by trailers alone.
func (s *lockedStream) SendHeader(md metadata.MD) error {
	if err := s.refused(); err != nil {
		return err
	}
	return s.ServerStream.SendHeader(md)
}

func (s *lockedStream) refused() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusal
}

// enter takes the lock. req is nil when the key needs no message.
func (s *lockedStream) enter(req any) error {
	s.asked = true
	lease, verdict := s.door.enter(s.parent, s.method, req)
	return s.settle(lease, verdict)
}

// keyless decides on a stream that ended before its first message; eof is what the handler gets where it may run.
func (s *lockedStream) keyless(eof error) error {
	s.asked = true
	lease, verdict := s.door.keyless(s.parent, s.method, admit.Missing("the stream's first message"))
	if err := s.settle(lease, verdict); err != nil {
		return err
	}
	return eof
}

// settle makes the lease or the refusal the stream's.
func (s *lockedStream) settle(lease *core.Lease, verdict *admit.Verdict) error {
	if verdict != nil {
		err := refuse(s.parent, verdict, s.SetTrailer)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refusal = err
		return err
	}
	if !s.keep(lease) {
		s.door.guard.Leave(s.parent, lease, false)
		return status.FromContextError(context.Canceled).Err()
	}
	return nil
}

// keep makes the lease the stream's. False: the handler has returned meanwhile, and nobody else would give it back.
func (s *lockedStream) keep(lease *core.Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left || lease == nil {
		return lease == nil
	}
	s.lease, s.ctx = lease, lease.Context()
	s.unwatch = context.AfterFunc(s.ctx, func() { s.end(context.Cause(lease.Context())) })
	return true
}

// answer is the call's error: the refusal whatever the handler made of it, or what the handler returned.
func (s *lockedStream) answer(err error) error {
	s.mu.Lock()
	refusal, lease := s.refusal, s.lease
	s.mu.Unlock()
	if refusal != nil {
		return refusal
	}
	outer := s.ServerStream.Context() // parent has ended when the lease was lost
	s.success = s.door.succeeded(outer, nil, err)
	if lost := s.door.lost(outer, lease, err); lost != nil {
		return refuse(outer, lost, s.SetTrailer)
	}
	return err
}

// leave gives the lease back when the handler has returned or panicked.
func (s *lockedStream) leave() {
	s.mu.Lock()
	s.left = true
	lease, unwatch := s.lease, s.unwatch
	s.mu.Unlock()
	if unwatch != nil {
		unwatch()
	}
	s.door.guard.Leave(s.ServerStream.Context(), lease, s.success)
	s.end(nil) // ends a wait for the lock in a receiving goroutine that the handler has left behind
}
