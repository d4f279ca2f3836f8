package admit

import (
	"context"
	"errors"
	"fmt"

	"github.com/latchkit/latchkit/core"
)

// Context is the one to handle the request under: the lease's, or ctx where there is no lease.
func Context(ctx context.Context, lease *core.Lease) context.Context {
	if lease == nil {
		return ctx
	}
	return lease.Context()
}

// Interrupted returns why the lease ended before it was left (ErrLost, ErrMaxHold, ErrClosed), or nil when it lives or
// only its parent has ended.
func Interrupted(lease *core.Lease) error {
	if lease == nil {
		return nil
	}
	if cause := context.Cause(lease.Context()); cause != nil &&
		isAny(cause, core.ErrLost, core.ErrMaxHold, core.ErrClosed) {
		return cause
	}
	return nil
}

// Lost is the Verdict on a handler that returned err because its lease ended under it: the answer is then "come
// again", with the advice when, and not the handler's bare cancellation. It is nil for any other error, and when the
// caller's own ctx has ended, for then nobody waits for the answer.
func (g *Guard) Lost(ctx context.Context, lease *core.Lease, err error) *Verdict {
	if err == nil || ctx.Err() != nil {
		return nil
	}
	cause := Interrupted(lease)
	if cause == nil || !isAny(err, context.Canceled, cause) {
		return nil
	}
	if !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	v := &Verdict{Row: LeaseLost, Err: err}
	g.advise(v)
	return v
}
