package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Pauses of Lead: after the backend could not serve, and after fn has failed. They double, up to a bound, and have
// jitter; a run that lasted longer than the greatest pause begins anew with the least.
const (
	leadPause    = 100 * time.Millisecond
	leadPauseMax = 10 * time.Second
	failPause    = time.Second
	failPauseMax = time.Minute
)

// Lead runs fn under the lock of key, in one of the processes that call it; the others stand by. When the one that leads
// dies, loses its lease or cannot reach the backend, another takes over within the TTL and one poll.
//
// fn's context ends before the lease can, so no other runs fn while it is alive; fn must return then, and does not run
// here again before it has. Lead returns
//
//   - nil when fn has returned nil while its lease was held: the work is done. Others that stand by go on and run fn in
//     their turn. A nil that comes after the loss does not count, for fn may have stopped because of it.
//   - ctx's error when ctx has ended, joined with fn's last error if it has one.
//   - at once what no waiting would mend: ErrInvalidKey, ErrInvalidOption, ErrConflict, ErrDenied, ErrClosed,
//     ErrNoLocker.
//
// While the backend is away Lead tries again, with growing pauses of up to 10 s, for as long as it takes. After an error
// of fn it gives the key back and stands by again, after a pause that grows from 1 s to 1 min when it fails each time;
// wrap fn to log its errors. A key that is kept after ReleaseAfter is waited for. A panic in fn passes through, and
// releases. opts are those of Acquire; WithWait has no effect.
func Lead(ctx context.Context, l Locker, key string, fn func(ctx context.Context) error, opts ...Option) error {
	s := standby{ctx: ctx, locker: l, key: key, fn: fn, options: append(opts[:len(opts):len(opts)], WithWait(Forever))}
	away, failing := growing{least: leadPause, most: leadPauseMax}, growing{least: failPause, most: failPauseMax}
	for {
		began := time.Now()
		led, lost, err := s.turn()
		var pause time.Duration
		switch {
		case led && !lost && err == nil:
			return nil
		case led && lost:
			pause = leadPause // others may come first
			away.reset()
		case led:
			s.last = err
			if time.Since(began) > failPauseMax {
				failing.reset()
			}
			pause = failing.next()
			away.reset()
		case ctx.Err() != nil:
		case s.hopeless(err):
			return err
		default:
			pause = max(away.next(), completedFor(err))
		}
		if !sleep(ctx, pause) {
			return s.ended()
		}
	}
}

// standby is one that leads or waits to.
type standby struct {
	ctx     context.Context
	locker  Locker
	key     string
	fn      func(ctx context.Context) error
	options []Option
	last    error // of fn
}

// turn waits for the lead and runs fn. led tells whether fn ran, and lost whether the lease ended before it returned.
func (s *standby) turn() (led, lost bool, err error) {
	lease, err := s.locker.Acquire(s.ctx, s.key, s.options...)
	if err != nil {
		return false, false, err
	}
	defer lease.Release(s.ctx) //nolint:errcheck // what could not be freed goes with the engine's next attempt or its TTL
	ctx := lease.Context()
	err = s.fn(ctx)
	return true, ctx.Err() != nil && s.ctx.Err() == nil, err
}

// hopeless tells whether trying again would bring the same.
func (*standby) hopeless(err error) bool {
	if errors.Is(err, ErrUnavailable) {
		return false
	}
	for _, target := range []error{ErrInvalidKey, ErrInvalidOption, ErrConflict, ErrDenied, ErrClosed, ErrNoLocker} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

func (s *standby) ended() error {
	err := fmt.Errorf("latchkit: lead %q: %w", s.key, s.ctx.Err())
	if s.last != nil && !errors.Is(s.last, s.ctx.Err()) {
		return errors.Join(err, s.last)
	}
	return err
}

// completedFor is for how long the key is kept after ReleaseAfter.
func completedFor(err error) time.Duration {
	if busy, ok := errors.AsType[*NotAcquiredError](err); ok && busy.Completed {
		return busy.RetryAfter
	}
	return 0
}

// growing is a pause that doubles, with jitter.
type growing struct{ least, most, now time.Duration }

func (g *growing) next() time.Duration {
	g.now = min(max(2*g.now, g.least), g.most)
	return g.now/2 + rand.N(g.now/2+1)
}

func (g *growing) reset() { g.now = 0 }

// sleep returns false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
