package grpclock

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/latchkit/latchkit/core"
)

// UnaryClientInterceptor lets the server take part in the locks under which a call is made, where both ends have been
// given the same secret by [WithOwnerSecret]: see "Calls from service to service" above. Without a secret it carries
// nothing. The other options are for servers, and mean nothing here.
func UnaryClientInterceptor(opts ...Option) grpc.UnaryClientInterceptor {
	o := ownersOf(opts)
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return invoker(o.send(ctx), method, req, reply, cc, opts...)
	}
}

// StreamClientInterceptor is UnaryClientInterceptor for streams: they take the locks along that are held when they begin.
func StreamClientInterceptor(opts ...Option) grpc.StreamClientInterceptor {
	o := ownersOf(opts)
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		return streamer(o.send(ctx), desc, cc, method, opts...)
	}
}

const (
	// ownerMetadata carries a signed token for each hold under which a call is made.
	ownerMetadata = "latchkit-owner"
	// tokenLife is for how long a token may be used from the start of its call, while the hold lasts.
	tokenLife = 5 * time.Minute
	// maxTokens is how many tokens of a call are looked at, so that nobody can have a server check signatures by the
	// thousand. A call is hardly made under more locks.
	maxTokens = 16
)

// owners moves the holds under which a call is made across it, so that a service which holds a key can call another
// that locks the same one. Without a secret it moves none: what a client sends is then never looked at.
type owners struct{ secret []byte }

func ownersOf(opts []Option) owners {
	var d door
	for _, o := range opts {
		if o != nil {
			o(&d)
		}
	}
	return d.owners
}

// send returns the context of an outgoing call with the owners of ctx in its metadata.
func (o owners) send(ctx context.Context) context.Context {
	if o.secret == nil {
		return ctx
	}
	for _, token := range core.ExportOwners(ctx, o.secret, tokenLife) {
		ctx = metadata.AppendToOutgoingContext(ctx, ownerMetadata, token)
	}
	return ctx
}

// receive returns the context of an incoming call as one under the holds whose tokens came along and are genuine.
func (o owners) receive(ctx context.Context) context.Context {
	if o.secret == nil {
		return ctx
	}
	tokens := metadata.ValueFromIncomingContext(ctx, ownerMetadata)
	for _, token := range tokens[:min(len(tokens), maxTokens)] {
		ctx = core.ContextWithOwner(ctx, o.secret, token)
	}
	return ctx
}

// receiveStream is receive for a stream that is not locked itself: its handler may lock by hand.
func (o owners) receiveStream(ss grpc.ServerStream) grpc.ServerStream {
	outer := ss.Context()
	if ctx := o.receive(outer); ctx != outer {
		return &calledStream{ss, ctx}
	}
	return ss
}

type calledStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *calledStream) Context() context.Context { return s.ctx }
