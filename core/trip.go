package core

import (
	"context"
	"errors"
	"sync"
	"time"
)

// tripLimit bounds a trip to the backend, retries included, whatever the caller's context and the client's settings
// allow.
const tripLimit = 2 * time.Second

// tripContext is the context of one trip: the values of a caller, and a deadline that is the earlier one of the engine's
// limit and the caller's own. A caller's bare cancel does not end it: a socket that is read cannot be cancelled, and
// what became of the command is known sooner from the reply.
//
// The deadline bounds the socket. Done, which stands for what is waited for beside it (a place in the pool, a dial), may
// close up to tripGrain later, so that one timer serves all trips of that time.
type tripContext struct {
	context.Context                 // for its values
	caller          context.Context // nil: none whose end matters
	deadline        time.Time
	done            <-chan struct{}
	lone            [1]*Op // what travels when it is one operation, in the same memory
}

const tripGrain = 128 * time.Millisecond

// newTrip returns the context of a trip until limit that has the values of values, for caller, which may be nil. The limit is
// of time.Now, not of the engine's clock: it is compared with times that have no monotonic reading, those of go-redis and a
// caller's deadline that was parsed.
func (a *alarmClock) newTrip(values, caller context.Context, limit time.Time) *tripContext {
	c := &tripContext{Context: values, caller: caller, deadline: limit}
	if caller != nil {
		if d, ok := caller.Deadline(); ok && d.Before(limit) {
			c.deadline, c.done = d, caller.Done()
			return c
		}
	}
	c.done = a.at(limit)
	return c
}

func (c *tripContext) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *tripContext) Done() <-chan struct{}       { return c.done }

func (c *tripContext) Err() error {
	select {
	case <-c.done:
		if c.caller != nil && c.caller.Err() != nil {
			return c.caller.Err()
		}
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func (c *tripContext) Value(key any) any {
	if key == (tripKey{}) {
		return c
	}
	return c.Context.Value(key)
}

type tripKey struct{}

// ErrTripTimeout is the cause with which a context that was made outside the engine ends by a limit like the engine's:
// context.WithTimeoutCause(ctx, d, ErrTripTimeout) for a trip that no caller waits for.
var ErrTripTimeout = errors.New("latchkit: trip to the backend took too long")

// CallerEnded is for a Backend that tells a store that fails from a caller that is impatient. It returns why the caller
// of the trip under ctx has ended, and nil when it has not: what ended the trip then is the engine's own limit.
func CallerEnded(ctx context.Context) error {
	c, ok := ctx.Value(tripKey{}).(*tripContext)
	if !ok {
		if context.Cause(ctx) == ErrTripTimeout {
			return nil
		}
		return ctx.Err()
	}
	return ended(c.caller)
}

// ended returns why a caller has ended, nil when it has not. A socket's timer may fire a moment before the context's own
// for the same deadline.
func ended(caller context.Context) error {
	if caller == nil {
		return nil
	}
	if err := caller.Err(); err != nil {
		return err
	}
	if d, ok := caller.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}

// alarmClock hands out channels that close at a time, shared by all who ask for about the same one. Each engine has its
// own, so that one inside a testing/synctest bubble stays inside.
type alarmClock struct {
	start time.Time // ticks are counted from it, for the clock on the wall may be set
	mu    sync.Mutex
	tick  int64
	done  chan struct{}
}

func (a *alarmClock) at(t time.Time) <-chan struct{} {
	tick := int64(t.Sub(a.start)/tripGrain) + 1
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done == nil || a.tick != tick {
		done := make(chan struct{})
		a.tick, a.done = tick, done
		time.AfterFunc(time.Until(a.start.Add(time.Duration(tick)*tripGrain)), func() { close(done) })
	}
	return a.done
}
