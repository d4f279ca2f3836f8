package admit

import (
	"context"
	"fmt"
	"time"

	"github.com/latchkit/latchkit/core"
)

// DefaultRetryAfter is what a caller is told to wait when nothing better is known.
const DefaultRetryAfter = time.Second

// Guard stands before a handler. Its fields are set once, before the first Enter; it is then safe for concurrent use.
type Guard struct {
	// Locker to lock with. Nil: core.Default() at the time of the request.
	Locker core.Locker
	// Acquire are the options of each Acquire.
	Acquire []core.Option
	// Cooldown is for how long the key stays taken after a success. 0: not at all.
	Cooldown time.Duration
	// RetryAfter is what a caller is told to wait when the key is busy or the backend away. 0: DefaultRetryAfter.
	RetryAfter time.Duration
	// RefuseDegraded turns callers away when the lock could only be had without its store.
	RefuseDegraded bool
}

// Enter takes the key. A nil Verdict means admitted; then Leave must follow, also when the handler panics. The lease
// is nil where the Locker hands out none: a lock that was not needed.
func (g *Guard) Enter(ctx context.Context, key string) (*core.Lease, *Verdict) {
	lease, err := g.acquire(ctx, key)
	if err != nil {
		return nil, g.Refuse(ctx, err)
	}
	if g.RefuseDegraded && lease.Degraded() {
		_ = lease.Release(ctx) // the caller is refused either way, and the key goes with its TTL at the latest
		return nil, g.Refuse(ctx, fmt.Errorf("%w: a lock without its store is refused here", core.ErrUnavailable))
	}
	return lease, nil
}

// Refuse is the Verdict on an error of Acquire, with the advice when to come again. An error of the programmer or of the
// set-up is logged here.
func (g *Guard) Refuse(ctx context.Context, err error) *Verdict {
	v := Classify(ctx, err)
	g.advise(v)
	v.log(ctx)
	return v
}

// RefuseKey is the Verdict on a request whose key could not be read: err comes from a key function.
func (g *Guard) RefuseKey(ctx context.Context, err error) *Verdict {
	v := classifyKey(ctx, err)
	g.advise(v)
	v.log(ctx)
	return v
}

// Leave ends what Enter began. After a success the key stays taken for the Cooldown; otherwise, and whenever the lease
// was lost, it is freed at once. It works when ctx is dead already. What can go wrong here concerns the key only, which
// goes with its TTL at the latest; the handler has run, and its answer stands.
func (g *Guard) Leave(ctx context.Context, lease *core.Lease, success bool) {
	if lease == nil {
		return
	}
	if success && g.Cooldown > 0 && lease.ReleaseAfter(ctx, g.Cooldown) == nil {
		return // a lease that was lost refuses: another may have run meanwhile
	}
	_ = lease.Release(ctx)
}

func (g *Guard) acquire(ctx context.Context, key string) (*core.Lease, error) {
	if key == "" {
		return nil, Missing("key")
	}
	locker := g.Locker
	if locker == nil {
		locker = core.Default()
	}
	if locker == nil {
		return nil, core.ErrNoLocker
	}
	return locker.Acquire(ctx, key, g.Acquire[:len(g.Acquire):len(g.Acquire)]...) // a Locker may append
}

// advise says when to come again. A holder's TTL only bounds the advice, for a lease of 30 s says nothing about a
// handler of 200 ms; what is left of a cooldown, or of a quarantine, is exact.
func (g *Guard) advise(v *Verdict) {
	usual := g.RetryAfter
	if usual <= 0 {
		usual = DefaultRetryAfter
	}
	switch {
	case v.Row == Busy && v.RetryAfter > 0:
		v.RetryAfter = min(v.RetryAfter, usual)
	case v.RetryAfter <= 0 && v.Row.passing():
		v.RetryAfter = usual
	}
}
