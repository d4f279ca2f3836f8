package grpclock

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/latchkit/latchkit/core"
)

// Option sets how the interceptors behave. Options panic over what no deployment could mean.
type Option func(*door)

// WithLocker locks with l. Without it core.Default() is asked at each call; if there is none either, the call is answered
// INTERNAL.
func WithLocker(l core.Locker) Option {
	if l == nil {
		panic("grpclock: WithLocker(nil)")
	}
	return func(d *door) { d.guard.Locker = l }
}

// WithAcquire adds options to each Acquire, such as core.WithWait to have calls queue instead of being refused. An option
// out of range shows in the first call: INTERNAL.
func WithAcquire(opts ...core.Option) Option {
	return func(d *door) { d.guard.Acquire = append(d.guard.Acquire, opts...) }
}

// WithCooldown keeps the key for d, up to 24 h, after a call that succeeded: repetitions are answered ALREADY_EXISTS.
// After a failure it is freed at once, and so is that of a lease that was lost. Success is OK unless [WithSuccess] says
// otherwise. 0 means none.
//
// The cooldown is the key's, so it keeps out all methods that lock the same key; for one method only add
// [WithPerMethod].
func WithCooldown(d time.Duration) Option {
	if d < 0 || d > core.MaxTTL {
		panic(fmt.Sprintf("grpclock: WithCooldown(%v): allowed is 0 to 24h", d))
	}
	return func(o *door) { o.guard.Cooldown = d }
}

// WithRetryAfter sets what a refused caller is told to wait, in RetryInfo and pushback: 1 s unless set, and for 0. It is
// never told more than the holder's lease still runs. What is left of a cooldown, or of a quarantine of RedLock, is always
// told exactly.
func WithRetryAfter(d time.Duration) Option {
	if d < 0 {
		panic(fmt.Sprintf("grpclock: WithRetryAfter(%v): allowed is 0 or more", d))
	}
	return func(o *door) { o.guard.RetryAfter = d }
}

// WithMethods locks only the given methods, named in full as in "/shop.Orders/Pay" (the generated code has constants
// for them); all others pass.
func WithMethods(fullMethods ...string) Option {
	if len(fullMethods) == 0 {
		panic("grpclock: WithMethods without a method")
	}
	for _, m := range fullMethods {
		checkMethod("WithMethods", m)
	}
	return func(d *door) {
		if d.methods == nil {
			d.methods = map[string]bool{}
		}
		for _, m := range fullMethods {
			d.methods[m] = true
		}
	}
}

// WithPerMethod makes the method part of the key, so that it locks the resource for that method only: Pay and Cancel of
// one order run side by side.
func WithPerMethod() Option { return func(d *door) { d.perMethod = true } }

// WithAllowDegraded tells whether calls are admitted when the lock is held without its store, by a fallback. They are
// unless set to false: then they are answered UNAVAILABLE.
func WithAllowDegraded(allow bool) Option { return func(d *door) { d.guard.RefuseDegraded = !allow } }

// WithSuccess sets what starts the cooldown: success is told the handler's answer, with a nil resp for streams.
// grpc.Method(ctx) names the method. It is called only where there is a cooldown, before the lease is released.
func WithSuccess(success func(ctx context.Context, resp any, err error) bool) Option {
	if success == nil {
		panic("grpclock: WithSuccess(nil)")
	}
	return func(d *door) { d.success = success }
}

// WithOwnerSecret lets a server take part in the locks of services that call it, when given to its interceptors and to
// the client interceptors of the callers: see "Calls from service to service". The secret has 16 bytes or more, and is
// the same on both ends. Whoever has it can act for any holder whose tokens it sees, so it is shared between services
// that trust each other, and connections between them are encrypted.
func WithOwnerSecret(secret []byte) Option {
	if len(secret) < 16 {
		panic(fmt.Sprintf("grpclock: WithOwnerSecret: %d bytes; allowed is 16 or more", len(secret)))
	}
	secret = bytes.Clone(secret)
	return func(d *door) { d.owners.secret = secret }
}

// checkMethod panics when method can be no gRPC method's full name: a lock that never engages must not go unnoticed.
func checkMethod(where, method string) {
	service, name, ok := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	if !strings.HasPrefix(method, "/") || !ok || service == "" || name == "" || strings.Contains(name, "/") {
		panic(fmt.Sprintf(`grpclock: %s: %q is no full method name such as "/shop.Orders/Pay"`, where, method))
	}
}
