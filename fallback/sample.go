package fallback

import (
	"context"
	"errors"

	"github.com/latchkit/latchkit/core"
)

// judge returns the operations of a trip that the backend could not serve, and makes the trip one sample for the breaker:
// nil, the failure, or errNoSample.
//
// A trip with anything in it that the backend could not serve is a failure: a batch of a hundred that is lost is one.
// An answer is a success, with one exception. A server that is full or read-only refuses what takes a lock and answers
// what frees one, so after a failed Try only an answered Try tells that locks can be had again.
func (n *node) judge(ctx context.Context, ops []*core.Op) (unserved []*core.Op, sample error) {
	cut, tries, failedTry, answered := false, false, false, false
	for _, op := range ops {
		if op.Err != nil {
			cut = core.CallerEnded(ctx) != nil
			break
		}
	}
	for _, op := range ops {
		tries = tries || op.Action == core.Try
		switch n.outcome(op.Err, cut) {
		case served:
			answered = true
		case failed:
			unserved = append(unserved, op)
			failedTry = failedTry || op.Action == core.Try
		}
	}
	switch {
	case len(unserved) > 0:
		if failedTry {
			n.stuck.Store(true)
		}
		err := unserved[0].Err
		n.lastFailure.Store(&err)
		return unserved, err
	case !answered:
		return nil, errNoSample
	case tries:
		n.stuck.Store(false)
	case n.stuck.Load():
		return nil, errNoSample
	}
	return nil, nil
}

// outcome is what the result of an operation tells of the node.
type outcome uint8

const (
	served   outcome = iota // it answered
	failed                  // it could not serve
	excluded                // nothing
)

// outcome classifies err; cut: the trip was cut short by its caller.
func (n *node) outcome(err error, cut bool) outcome {
	st := &n.backend.settings.breaker
	switch {
	case err == nil:
		return served
	case cut, errors.Is(err, core.ErrClosed): // the latter: the client was closed
		return excluded
	case answers(err):
		return served
	case st.IsExcluded != nil && st.IsExcluded(err):
		return excluded
	case st.IsSuccessful != nil && st.IsSuccessful(err):
		return served
	}
	return failed
}

// answers tells whether err shows that the backend is there. Refusals for lack of rights are among them: local locks in
// their stead would hide a mistake, and a breaker that waits for them to end would never close.
func answers(err error) bool {
	switch {
	case errors.Is(err, core.ErrDenied): // a RedLock's majority too, which then has no quorum
		return true
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, core.ErrUnavailable):
		return quarantined(err)
	}
	return true
}

// quarantined tells whether the nodes of a RedLock answer and refuse for a time that they know: waiters wait that out.
func quarantined(err error) bool {
	_, ok := errors.AsType[*core.QuarantineError](err)
	return ok
}
