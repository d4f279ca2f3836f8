package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errApart: the keys must be taken one after the other.
var errApart = errors.New("apart")

// acquireTogether takes all keys, which are sorted, in one trip. It does not wait: where it would have to, and s lets it,
// it says errApart and has taken nothing.
func (locks *Locks) acquireTogether(ctx context.Context, keys []string, s settings) ([]*Lease, error) {
	if !locks.together(ctx, keys, s) {
		return nil, errApart
	}
	t := &together{locks: locks, ctx: ctx, wait: s.wait}
	s.wait = 0 // a refused one must not be counted among those that wait
	for _, key := range keys {
		t.all = append(t.all, newAcquisition(ctx, locks, key, s))
	}
	if err := locks.supports(t.all[0].want); err != nil {
		return nil, err
	}
	if s.tracer == nil {
		return t.acquire()
	}
	return t.traced()
}

// together tells whether the keys can be had in one trip, if they are free.
func (locks *Locks) together(ctx context.Context, keys []string, s settings) bool {
	gatherer, ok := locks.backend.(Gatherer)
	if !ok || len(keys) < 2 || len(keys) > maxBatch || s.kind != Exclusive || s.fair || s.replicas > 0 {
		return false
	}
	full := make([]string, len(keys))
	outer, _ := FromContext(ctx)
	for i, key := range keys {
		if checkKey(key) != nil {
			return false
		}
		full[i] = s.prefix + key
		if within, err := locks.descends(outer, full[i]); within != nil || err != nil {
			return false // a re-entry
		}
		if carriedFor(ctx, full[i]) != nil {
			return false
		}
	}
	return gatherer.Together(full)
}

// together is an acquisition of several keys on its way.
type together struct {
	locks *Locks
	ctx   context.Context
	wait  time.Duration
	all   []*acquisition
	gates []*gate // those that are led by now
}

func (t *together) traced() ([]*Lease, error) {
	starts := make([]AcquireStart, len(t.all))
	for i, a := range t.all {
		starts[i] = a.traceStart()
	}
	leases, err := t.acquire()
	for i, a := range t.all {
		if err != nil {
			a.traceEnd(starts[i], nil, t.told(a, err))
		} else {
			a.traceEnd(starts[i], leases[i], nil)
		}
	}
	return leases, err
}

// told is what the Tracer hears of a when the whole ended with err.
func (t *together) told(a *acquisition, err error) error {
	if err == errApart {
		return &NotAcquiredError{Key: a.key}
	}
	return err
}

// acquire leads all gates, and makes the trip. A gate that somebody else leads, or that does not let a new one in, ends
// the attempt: to wait there while leading others could end in a circle.
func (t *together) acquire() ([]*Lease, error) {
	panics := true
	defer func() {
		if panics { // the Backend did
			t.stepDown(nil)
		}
	}()
	leases, err := t.strive()
	panics = false
	return leases, err
}

func (t *together) strive() ([]*Lease, error) {
	for _, a := range t.all {
		if err := t.enter(a); err != nil {
			t.stepDown(err)
			return nil, err
		}
	}
	ops, sent, err := t.attempt()
	if err != nil {
		t.stepDown(err)
		return nil, err
	}
	if err := t.verdict(ops); err != nil {
		return nil, err
	}
	return t.establish(ops, sent)
}

// enter leads the gate of a.
func (t *together) enter(a *acquisition) error {
	shard := t.locks.gates.shard(a.want.Key)
	shard.Lock()
	defer shard.Unlock()
	if t.locks.live.isClosed() {
		return ErrClosed
	}
	g := shard.open(a.want.Key)
	if g.queue.len > 0 || g.leading || !g.compatible(&a.want) {
		if t.wait == 0 && len(g.tenures) > 0 {
			busy := g.busy(a.key, time.Now())
			a.stats.mark, a.stats.note = busy.mark, busy.note
			return busy
		}
		return errApart
	}
	a.leads, g.leading, g.flying = true, true, true
	g.queue.push(a)
	t.gates = append(t.gates, g)
	return nil
}

// stepDown gives up the gates that are led. What ended the attempt says nothing to those who share it there.
func (t *together) stepDown(err error) {
	for i, g := range t.gates {
		_ = t.all[i].stepDown(g, err, false)
	}
	t.gates = nil
}

// attempt makes the trip, again where the backend cannot serve, within the trip limit. Operations that are answered with
// an error, or not wanted any more, are undone.
func (t *together) attempt() (ops []*Op, sent time.Time, err error) {
	limit := time.Now().Add(tripLimit)
	for n := 1; ; n++ {
		ops = make([]*Op, len(t.all))
		for i, a := range t.all {
			a.stats.attempts++
			ops[i] = &Op{Action: Try, Hold: a.want, Owner: newToken(), Fences: 1, All: true}
		}
		sent = time.Now()
		t.locks.trips.make(t.all[0].trip, t.ctx, limit, ops)
		t.settle(time.Since(sent))
		if err := ended(t.ctx); err != nil {
			for _, op := range ops {
				t.locks.undo.settle(op)
			}
			return nil, sent, t.all[0].ended(err)
		}
		failed := t.judge(ops, sent)
		if failed == nil {
			return ops, sent, nil
		}
		if !again(failed, n) || !backoff(t.ctx, n, limit) {
			return nil, sent, fmt.Errorf("latchkit: acquire %q: %w", failed.Key, failed.Err)
		}
	}
}

func (t *together) settle(took time.Duration) {
	for _, a := range t.all {
		a.stats.inBackend += took
	}
}

// judge returns the first operation that failed; the others are undone then.
func (t *together) judge(ops []*Op, sent time.Time) (failed *Op) {
	for i, a := range t.all {
		a.judge(ops[i], sent)
		if ops[i].Err != nil && failed == nil {
			failed = ops[i]
		}
	}
	if failed != nil {
		for _, op := range ops {
			if op.Err == nil && op.Verdict == Granted {
				t.locks.undo.add(op, true)
			}
		}
	}
	return failed
}

// verdict returns the refusal, if there is one. The gate of the key that is held learns of it, the others do not.
func (t *together) verdict(ops []*Op) error {
	var busy *NotAcquiredError
	var held int
	for i, op := range ops {
		switch {
		case op.Verdict == Granted:
		case busy == nil, busy.RetryAfter == 0 && op.Left > 0:
			held = i
			busy = &NotAcquiredError{Key: t.all[i].key, RetryAfter: op.Left, Completed: op.Completed, note: op.HolderNote}
		}
	}
	if busy == nil {
		return nil
	}
	for _, op := range ops {
		if op.Verdict == Granted {
			t.locks.undo.add(op, true) // a Backend that does not keep its word
		}
	}
	for i, g := range t.gates {
		_ = t.all[i].stepDown(g, busy, i == held && t.wait == 0)
	}
	for _, a := range t.all {
		a.stats.note = busy.note
	}
	if t.wait > 0 && !busy.Completed {
		return errApart
	}
	return busy
}

// establish makes tenures of the grants. The leases' contexts are children of one another.
func (t *together) establish(ops []*Op, sent time.Time) (leases []*Lease, err error) {
	for i, a := range t.all {
		if err != nil {
			t.locks.undo.add(ops[i], true)
			_ = a.stepDown(t.gates[i], err, false)
			continue
		}
		var lease *Lease
		if lease, err = a.establish(t.gates[i], ops[i], sent); err == nil {
			leases = append(leases, lease)
		}
	}
	if err != nil {
		_ = releaseAll(t.ctx, leases) // the engine repeats what fails
		return nil, err
	}
	for i := 1; i < len(leases); i++ {
		leases[i].parent, leases[i].outer = leases[i-1].Context(), leases[i-1]
	}
	return leases, nil
}
