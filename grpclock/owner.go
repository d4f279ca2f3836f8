package grpclock

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// ownerMetadata carries the signed owners of the leases under which a call is made, one value for each.
const ownerMetadata = "latchkit-owner"

// owners moves the owners of leases across a call, so that a service which holds a key can call another that locks the
// same one. The zero value moves none: what a client sends under ownerMetadata is then never looked at.
type owners struct {
	// export returns a signed token for each lease under which ctx runs.
	export func(ctx context.Context) []string
	// accept returns ctx as one that runs under the leases of those tokens that are genuine.
	accept func(ctx context.Context, tokens []string) context.Context
}

// receive returns the context of an incoming call with the owners that came along.
func (o owners) receive(ctx context.Context) context.Context {
	if o.accept == nil {
		return ctx
	}
	if tokens := metadata.ValueFromIncomingContext(ctx, ownerMetadata); len(tokens) > 0 {
		return o.accept(ctx, tokens)
	}
	return ctx
}

// send returns the context of an outgoing call with the owners of ctx in its metadata.
func (o owners) send(ctx context.Context) context.Context {
	if o.export == nil {
		return ctx
	}
	for _, token := range o.export(ctx) {
		ctx = metadata.AppendToOutgoingContext(ctx, ownerMetadata, token)
	}
	return ctx
}

func (o owners) unaryClient(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoker(o.send(ctx), method, req, reply, cc, opts...)
}

func (o owners) streamClient(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return streamer(o.send(ctx), desc, cc, method, opts...)
}
