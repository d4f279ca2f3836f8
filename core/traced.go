package core

import (
	"context"
	"errors"
	"time"
)

// traced is acquire with a Tracer told about it. One that panics leaves nobody with a lease that he does not know of.
func (a *acquisition) traced() (*Lease, error) {
	start := a.traceStart()
	lease, err := a.acquire()
	panics := true
	defer func() {
		if panics {
			_ = lease.Release(a.ctx)
		}
	}()
	a.traceEnd(start, lease, err)
	panics = false
	return lease, err
}

func (a *acquisition) traceStart() AcquireStart {
	a.began = time.Now()
	start := AcquireStart{Backend: a.locks.backend.Name(), Key: a.key, Kind: a.kind, Fair: a.fair, TTL: a.ttl,
		Wait: a.wait, Label: a.label}
	a.trip = a.tracer.AcquireStart(a.ctx, start)
	if n, ok := a.tracer.(Noter); ok {
		note := n.Note(a.trip)
		a.want.Note = note[:min(len(note), maxNote)]
	}
	return start
}

func (a *acquisition) traceEnd(start AcquireStart, lease *Lease, err error) {
	if a.stats.waiting {
		a.tracer.WaitEnd(a.trip, a.key)
	}
	mark := a.tracer.AcquireEnd(a.trip, AcquireEnd{
		AcquireStart: start, Outcome: a.outcome(err), Err: err, Lease: lease,
		Reentry: a.stats.reentry, HandOff: a.stats.handOff, Attempts: a.stats.attempts, Waited: time.Since(a.began),
		InGate: a.stats.inGate, InBackend: a.stats.inBackend, ForHolder: a.stats.forHolder,
		HolderMark: a.stats.mark, HolderNote: a.stats.note,
	})
	if lease == nil || a.stats.reentry {
		return
	}
	shard := lease.hold.tenure.gate.shard
	shard.Lock()
	lease.hold.mark = mark
	shard.Unlock()
	lease.hold.announce()
}

func (a *acquisition) outcome(err error) Outcome {
	switch {
	case err == nil:
		return OutcomeAcquired
	case errors.Is(err, context.DeadlineExceeded) && a.ctx.Err() != nil:
		return OutcomeTimeout
	case errors.Is(err, context.Canceled):
		return OutcomeCanceled
	case errors.Is(err, ErrInvalidOption), !errors.Is(err, ErrNotAcquired):
		return OutcomeError
	case a.stats.waiting:
		return OutcomeTimeout
	}
	return OutcomeContended
}
