package grpclock

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/latchkit/latchkit/core"
)

type ownersKey struct{}

// mover moves the tokens that stand in the context.
var mover = owners{
	export: func(ctx context.Context) []string { tokens, _ := ctx.Value(ownersKey{}).([]string); return tokens },
	accept: func(ctx context.Context, tokens []string) context.Context {
		return context.WithValue(ctx, ownersKey{}, tokens)
	},
}

// arrive is the context of the call that a client made with ctx.
func arrive(ctx context.Context) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx)
	return metadata.NewIncomingContext(context.Background(), md)
}

func TestOwnersTravelWithTheCall(t *testing.T) {
	ctx := context.WithValue(context.Background(), ownersKey{}, []string{"a", "b"})
	for name, c := range map[string]struct {
		client, server owners
		want           []string
	}{
		"both ends":   {mover, mover, []string{"a", "b"}},
		"client only": {mover, owners{}, nil},
		"server only": {owners{}, mover, nil},
		"neither":     {owners{}, owners{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got [][]string
			serve := func(ctx context.Context) {
				tokens, _ := c.server.receive(arrive(ctx)).Value(ownersKey{}).([]string)
				got = append(got, tokens)
			}
			invoke := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
				serve(ctx)
				return nil
			}
			stream := func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
				serve(ctx)
				return nil, nil
			}
			_ = c.client.unaryClient(ctx, "", nil, nil, nil, invoke)
			_, _ = c.client.streamClient(ctx, nil, nil, "", stream)
			for _, tokens := range got {
				if !slices.Equal(tokens, c.want) {
					t.Errorf("got %v, want %v", tokens, c.want)
				}
			}
		})
	}
}

// The owners are known before the lock is asked for.
func TestOwnersArriveBeforeTheLock(t *testing.T) {
	var seen any
	locker := core.LockerFunc(func(ctx context.Context, _ string, _ ...core.Option) (*core.Lease, error) {
		seen = ctx.Value(ownersKey{})
		return nil, core.ErrClosed
	})
	with := func(d *door) { d.owners = mover }
	call := UnaryServerInterceptor(func(context.Context, any) (string, error) { return "k", nil }, WithLocker(locker), with)
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs(ownerMetadata, "a"))
	if _, err := call(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a/b"}, nil); err == nil {
		t.Fatal("no refusal")
	}
	if tokens, _ := seen.([]string); !slices.Equal(tokens, []string{"a"}) {
		t.Fatalf("the Locker saw %v", seen)
	}
}
