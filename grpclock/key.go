package grpclock

import (
	"context"
	"fmt"
	"maps"
	"reflect"

	"google.golang.org/grpc"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/admit"
)

// KeyFunc reads the key from a call: from its context, its request (a stream's first message), or both. An error, or
// an empty key, is answered INVALID_ARGUMENT; the error's text stays on the server. It is called from many goroutines
// and must not change req.
//
// The functions of this package give "name:value", and escape braces in values, so that clients cannot choose a slot of
// a Redis Cluster. A function of your own gives its key as it is; wrap it in [Named] to have what the client sent
// escaped.
type KeyFunc func(ctx context.Context, req any) (string, error)

// Named gives the key another name: Named("order", Field("order.id")) is "order:42", and so the same lock as one that
// another method, or the HTTP API, takes under that name. Of a key that has no name, by [Join] or a function of yours,
// the whole is the value.
func Named(name string, key KeyFunc) KeyFunc {
	if name == "" {
		panic("grpclock: Named without a name")
	}
	return keyFunc(named{name, sourceOf("Named", key)})
}

// Join is all keys together, unambiguous whatever they contain: see core.JoinKey.
func Join(keys ...KeyFunc) KeyFunc {
	if len(keys) == 0 {
		panic("grpclock: Join without a key")
	}
	parts := make(joined, len(keys))
	for i, key := range keys {
		parts[i] = sourceOf("Join", key)
	}
	return keyFunc(parts)
}

// PerMethod is another key for each method, by its full name as in "/shop.Orders/Pay". Methods that are not in the map
// pass unlocked.
func PerMethod(keys map[string]KeyFunc) KeyFunc {
	if len(keys) == 0 {
		panic("grpclock: PerMethod without a method")
	}
	methods := make(perMethod, len(keys))
	for method, key := range maps.All(keys) {
		checkMethod("PerMethod", method)
		methods[method] = sourceOf("PerMethod", key)
	}
	return keyFunc(methods)
}

// source is what a KeyFunc of this package reads from. Combinators and interceptors look through the function at it,
// for a KeyFunc alone does not tell its name, nor whether it needs a stream's first message.
type source interface {
	// read returns the name and the value as the client sent it, never empty; or no name, and the whole key.
	read(ctx context.Context, method string, req any) (name, value string, err error)
	// needsMessage tells whether read looks at req.
	needsMessage(method string) bool
}

// errUnlocked: the call needs no lock.
var errUnlocked = fmt.Errorf("%w: the method is locked by no key", core.ErrInvalidKey)

// reveal stands for a request when keyFunc's function is asked for its source.
type reveal struct{ source source }

// keyFunc returns s as a KeyFunc. Inlined, it would put copies of the function below into callers, and sourceOf
// would not know them again.
//
//go:noinline
func keyFunc(s source) KeyFunc {
	return func(ctx context.Context, req any) (string, error) {
		if r, ok := req.(*reveal); ok {
			r.source = s
			return "", nil
		}
		method, _ := grpc.Method(ctx)
		return readKey(ctx, s, method, req)
	}
}

var keyFuncCode = reflect.ValueOf(keyFunc(nil)).Pointer()

// sourceOf returns what key reads from. A user's function is never called to find that out.
func sourceOf(where string, key KeyFunc) source {
	if key == nil {
		panic("grpclock: " + where + " with a nil KeyFunc")
	}
	if reflect.ValueOf(key).Pointer() != keyFuncCode {
		return custom(key)
	}
	var r reveal
	_, _ = key(context.Background(), &r) // answers through r
	return r.source
}

// readKey returns the whole key.
func readKey(ctx context.Context, s source, method string, req any) (string, error) {
	name, value, err := s.read(ctx, method, req)
	if err != nil || name == "" {
		return value, err
	}
	return admit.Key(name, value), nil
}

// custom is a user's function.
type custom KeyFunc

func (c custom) read(ctx context.Context, _ string, req any) (name, value string, err error) {
	value, err = c(ctx, req)
	if err == nil && value == "" {
		err = admit.Missing("the key")
	}
	return "", value, err
}

func (custom) needsMessage(string) bool { return true }

type named struct {
	name string
	source
}

func (n named) read(ctx context.Context, method string, req any) (name, value string, err error) {
	_, value, err = n.source.read(ctx, method, req)
	return n.name, value, err
}

type joined []source

func (j joined) read(ctx context.Context, method string, req any) (name, value string, err error) {
	parts := make([]string, len(j))
	for i, s := range j {
		if parts[i], err = readKey(ctx, s, method, req); err != nil {
			return "", "", err
		}
	}
	return "", core.JoinKey(parts...), nil
}

func (j joined) needsMessage(method string) bool {
	for _, s := range j {
		if s.needsMessage(method) {
			return true
		}
	}
	return false
}

type perMethod map[string]source

func (p perMethod) read(ctx context.Context, method string, req any) (name, value string, err error) {
	s, ok := p[method]
	if !ok {
		return "", "", errUnlocked
	}
	return s.read(ctx, method, req)
}

func (p perMethod) needsMessage(method string) bool {
	s, ok := p[method]
	return ok && s.needsMessage(method)
}
