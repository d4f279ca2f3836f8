package grpclock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/grpclock"
)

func text(v string) *wrapperspb.StringValue { return wrapperspb.String(v) }

func incoming(pairs ...string) context.Context {
	return metadata.NewIncomingContext(context.Background(), metadata.Pairs(pairs...))
}

func TestMetadata(t *testing.T) {
	for _, c := range []struct {
		ctx  context.Context
		want string // empty: refused
	}{
		{incoming("idempotency-key", "a"), "idempotency-key:a"},
		{incoming("Idempotency-Key", "{a}"), `idempotency-key:\(a\)`},
		{incoming("idempotency-key", ""), ""},
		{incoming("idempotency-key", "a", "idempotency-key", "a"), ""},
		{incoming("other", "a"), ""},
		{context.Background(), ""},
	} {
		got, err := grpclock.Metadata("Idempotency-Key")(c.ctx, nil)
		if got != c.want || (c.want == "") != errors.Is(err, core.ErrInvalidKey) {
			t.Errorf("got %q, %v; want %q", got, err, c.want)
		}
	}
}

func TestNamed(t *testing.T) {
	mine := func(context.Context, any) (string, error) { return "tenant:7{x}", nil }
	nothing := func(context.Context, any) (string, error) { return "", nil }
	ctx := incoming("user", "7")
	for _, c := range []struct {
		key  grpclock.KeyFunc
		want string
	}{
		{grpclock.Named("order", grpclock.Field("value")), "order:42"},
		{grpclock.Named("a", grpclock.Named("b", grpclock.Field("value"))), "a:42"},
		{grpclock.Named("who", grpclock.Metadata("user")), "who:7"},
		{grpclock.Named("order", mine), `order:tenant:7\(x\)`},
		{grpclock.Named("order", nothing), ""},
		{grpclock.Join(grpclock.Metadata("user"), nothing), ""},
		{grpclock.Join(grpclock.Metadata("user"), grpclock.Metadata("absent")), ""},
		{grpclock.Join(grpclock.Metadata("user"), grpclock.Field("value")), `user\:7:value\:42`},
		{grpclock.Named("order", grpclock.Join(mine)), "order:" + `tenant\\:7\(x\)`},
	} {
		got, err := c.key(ctx, text("42"))
		if got != c.want || (c.want == "") != errors.Is(err, core.ErrInvalidKey) {
			t.Errorf("got %q, %v; want %q", got, err, c.want)
		}
	}
}

// TestJoinIsUnambiguous: ("a:b", "c") and ("a", "b:c") are two keys.
func TestJoinIsUnambiguous(t *testing.T) {
	key := grpclock.Join(grpclock.Metadata("x"), grpclock.Metadata("y"))
	one, _ := key(incoming("x", "a:b", "y", "c"), nil)
	two, _ := key(incoming("x", "a", "y", "b:c"), nil)
	if one == two || one == "" {
		t.Fatalf("%q is one key for two requests", one)
	}
}

// TestKeysOfOneOrderInAllSyntaxes: how a service writes its .proto file does not change its keys.
func TestKeysOfOneOrderInAllSyntaxes(t *testing.T) {
	key := grpclock.Named("order", grpclock.Field("order.id"))
	for _, syntax := range syntaxes {
		if got, err := key(context.Background(), payRequest(t, shopFile(syntax), order("42"))); got != "order:42" {
			t.Errorf("%s: %q, %v", syntax, got, err)
		}
	}
}

// TestMistakesPanic: what no deployment could mean ends the program where it is written.
func TestMistakesPanic(t *testing.T) {
	key := grpclock.Field("id")
	for name, mistake := range map[string]func(){
		"nil key":           func() { grpclock.UnaryServerInterceptor(nil) },
		"nil stream key":    func() { grpclock.StreamServerInterceptor(nil) },
		"empty field":       func() { grpclock.Field("") },
		"empty segment":     func() { grpclock.Field("order..id") },
		"no field name":     func() { grpclock.Field("order[0]") },
		"empty metadata":    func() { grpclock.Metadata("") },
		"no metadata name":  func() { grpclock.Metadata("a b") },
		"empty name":        func() { grpclock.Named("", key) },
		"named nil":         func() { grpclock.Named("a", nil) },
		"join of none":      func() { grpclock.Join() },
		"join of nil":       func() { grpclock.Join(key, nil) },
		"per no method":     func() { grpclock.PerMethod(nil) },
		"per method nil":    func() { grpclock.PerMethod(map[string]grpclock.KeyFunc{methodPay: nil}) },
		"per method w/o /":  func() { grpclock.PerMethod(map[string]grpclock.KeyFunc{"shop.Orders/Pay": key}) },
		"no methods":        func() { grpclock.WithMethods() },
		"method name alone": func() { grpclock.WithMethods("Pay") },
		"method of no one":  func() { grpclock.WithMethods("//Pay") },
		"service":           func() { grpclock.WithMethods("/shop.Orders/") },
		"deep method":       func() { grpclock.WithMethods("/shop/Orders/Pay") },
		"nil locker":        func() { grpclock.WithLocker(nil) },
		"negative cooldown": func() { grpclock.WithCooldown(-time.Second) },
		"endless cooldown":  func() { grpclock.WithCooldown(25 * time.Hour) },
		"negative advice":   func() { grpclock.WithRetryAfter(-time.Second) },
		"nil success":       func() { grpclock.WithSuccess(nil) },
		"short secret":      func() { grpclock.WithOwnerSecret(make([]byte, 15)) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Fatal("no panic")
				}
			}()
			mistake()
		})
	}
}
