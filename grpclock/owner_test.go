package grpclock_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/grpclock"
	"github.com/latchkit/latchkit/internal/redistest"
)

var (
	secret  = []byte("a secret that both ends know")
	another = []byte("a secret of somebody else's")
)

// knows is the option that gives a secret, or none.
func knows(secret []byte) (opts []grpclock.Option) {
	if secret != nil {
		opts = append(opts, grpclock.WithOwnerSecret(secret))
	}
	return opts
}

// carries is how a client with the secret is connected.
func carries(secret []byte) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(grpclock.UnaryClientInterceptor(knows(secret)...)),
		grpc.WithChainStreamInterceptor(grpclock.StreamClientInterceptor(knows(secret)...)),
	}
}

// openShop opens a shop of its own process, as it were, on the store; its callers and itself know these secrets.
func openShop(t *testing.T, store core.Backend, h handlers, serverSecret, callerSecret []byte, opts ...grpclock.Option) *shop {
	t.Helper()
	opts = slices.Concat(knows(serverSecret), opts, []grpclock.Option{grpclock.WithLocker(locksOn(t, store))})
	return openWith(t, h, []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(grpclock.UnaryServerInterceptor(byOrder, opts...)),
		grpc.ChainStreamInterceptor(grpclock.StreamServerInterceptor(byOrder, opts...)),
	}, carries(callerSecret)...)
}

func locksOn(t *testing.T, store core.Backend) *core.Locks {
	t.Helper()
	locks, err := core.New(store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	return locks
}

// A service that holds order 42 calls another that locks order 42.
func TestACalledServiceTakesPart(t *testing.T) {
	for name, c := range map[string]struct {
		caller, called []byte
		carried        bool
	}{
		"both ends know the secret": {secret, secret, true},
		"only the caller":           {secret, nil, false},
		"only the called":           {nil, secret, false},
		"neither":                   {nil, nil, false},
		"each another":              {secret, another, false},
	} {
		t.Run(name, func(t *testing.T) {
			store := core.Redis(redistest.Embedded(t))
			observer := locksOn(t, store)
			look := func(ctx context.Context) error {
				lease, _ := core.FromContext(ctx)
				info, err := observer.Inspect(ctx, "order.id:42")
				if err != nil || len(info.Holders) != 1 || info.Holders[0].Count != 2 || info.Holders[0].Fence != lease.Fence() {
					t.Errorf("fence %d; the store says %+v, %v", lease.Fence(), info, err)
				}
				return nil
			}
			warehouse := openShop(t, store, handlers{
				unary: func(ctx context.Context, _ *dynamicpb.Message) error { return look(ctx) },
				stream: func(ss grpc.ServerStream) error {
					if err := receive(ss); err != nil {
						return err
					}
					return look(ss.Context())
				},
			}, c.called, c.caller)
			front := openShop(t, store, handlers{unary: func(ctx context.Context, _ *dynamicpb.Message) error {
				for kind, err := range map[string]error{
					"unary":  warehouse.call(ctx, methodPay, order("42")),
					"stream": ended(warehouse.follow(ctx, order("42"))),
				} {
					if c.carried && err != nil {
						t.Errorf("%s: %v", kind, err)
					} else if !c.carried {
						wantStatus(t, err, codes.Aborted, grpclock.ReasonBusy)
					}
				}
				return nil
			}}, nil, nil)
			if err := front.call(t.Context(), methodPay, order("42")); err != nil {
				t.Error(err)
			}
			free(t, observer, "order.id:42")
		})
	}
}

// Along a chain of three, in a method that is locked by hand.
func TestOwnersTravelOn(t *testing.T) {
	store := core.Redis(redistest.Embedded(t))
	third := locksOn(t, store)
	byHand := func(ctx context.Context) error {
		lease, err := third.Acquire(ctx, "order.id:42")
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}
	last := openShop(t, store, handlers{
		unary:  func(ctx context.Context, _ *dynamicpb.Message) error { return byHand(ctx) },
		stream: func(ss grpc.ServerStream) error { return byHand(ss.Context()) },
	}, secret, secret, grpclock.WithMethods(methodCancel))
	middle := openShop(t, store, handlers{unary: func(ctx context.Context, _ *dynamicpb.Message) error {
		if err := ended(last.follow(ctx)); err != nil {
			t.Errorf("stream: %v", err)
		}
		return last.call(ctx, methodPay, order("42"))
	}}, secret, secret)
	front := openShop(t, store, handlers{unary: func(ctx context.Context, _ *dynamicpb.Message) error {
		return middle.call(ctx, methodPay, order("42"))
	}}, nil, nil)
	if err := front.call(t.Context(), methodPay, order("42")); err != nil {
		t.Error(err)
	}
	free(t, third, "order.id:42")
}

// R22: a token that is not genuine, or not for this, changes nothing, and is counted.
func TestTokensThatMeanNothing(t *testing.T) {
	store := core.Redis(redistest.Embedded(t))
	caller := locksOn(t, store)
	s := openShop(t, store, handlers{}, secret, nil)
	export := func(lease *core.Lease, secret []byte, life time.Duration) string {
		token, err := lease.Export(secret, life)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	acquire := func(key string) *core.Lease {
		lease, err := caller.Acquire(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}
	lease, other := acquire("order.id:42"), acquire("order.id:43")
	genuine, expired := export(lease, secret, time.Minute), export(lease, secret, time.Millisecond)
	time.Sleep(2 * time.Millisecond)
	var many []string
	for range 100 {
		many = append(many, "latchkit-owner", "x")
	}
	for name, c := range map[string]struct {
		metadata                 []string
		forged, expired, foreign int64
	}{
		"nothing":        {nil, 0, 0, 0},
		"an owner":       {[]string{"latchkit-owner", lease.Owner()}, 1, 0, 0},
		"cut off":        {[]string{"latchkit-owner", genuine[1:]}, 1, 0, 0},
		"by another":     {[]string{"latchkit-owner", export(lease, another, time.Minute)}, 1, 0, 0},
		"expired":        {[]string{"latchkit-owner", expired}, 0, 1, 0},
		"of another key": {[]string{"latchkit-owner", export(other, secret, time.Minute)}, 0, 0, 1},
		"a flood":        {many, 16, 0, 0},
	} {
		before := core.OwnerTokens()
		wantStatus(t, s.call(with(c.metadata...), methodPay, order("42")), codes.Aborted, grpclock.ReasonBusy)
		after := core.OwnerTokens()
		if got := [...]int64{after.Forged - before.Forged, after.Expired - before.Expired, after.Foreign - before.Foreign}; got != [...]int64{c.forged, c.expired, c.foreign} {
			t.Errorf("%s: counted %v", name, got)
		}
	}
	token := with("latchkit-owner", genuine)
	if err := s.call(token, methodPay, order("42")); err != nil {
		t.Errorf("a genuine one: %v", err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	wantStatus(t, s.call(token, methodPay, order("42")), codes.Unavailable, grpclock.ReasonUnavailable) // its hold has ended
	if err := other.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
