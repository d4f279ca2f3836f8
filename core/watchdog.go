package core

import (
	"context"
	"sync"
	"time"
)

// watchdog renews the leases of one engine, and ends each at its deadline, whatever the backend answers or does not
// answer. It is one schedule with one timer: a lease costs an entry in a heap, and no goroutine.
//
// Renewals go out at a third of the TTL, counted from the instant before the command that set it was sent; those due
// within TTL/60 of each other join in a batch, each with an outcome of its own. One that does not reach the backend is
// tried again with backoff until the deadline.
type watchdog struct {
	locks  *Locks
	mu     sync.Mutex
	heap   []*tenure // by due
	timer  *time.Timer
	wakeAt time.Time // when the timer fires; zero when it is not set
	closed bool
}

const (
	renewBatch    = maxBatch
	renewParallel = 4 // batches of one node under way at once
	// renewTrips is which part of the TTL a renewal may take. Three that hang, and the pauses between them, end before the
	// lease does: at the third a breaker that opens after three can take the lease over.
	renewTrips = 6
)

func newWatchdog(locks *Locks) *watchdog { return &watchdog{locks: locks} }

// nextEvent is when the watchdog has to look at t.
func (t *tenure) nextEvent() time.Time {
	if t.renew && !t.renewing {
		return sooner(t.renewAt, t.deadline)
	}
	return t.deadline
}

// put schedules t for due, or moves it there. The tenure's shard is locked.
func (w *watchdog) put(t *tenure, due time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.due = due
	if t.slot < 0 {
		t.slot = len(w.heap)
		w.heap = append(w.heap, t)
	}
	w.fix(t.slot)
	// A timer set for later than due is moved; one set for earlier just finds nothing due. So a lone holder that
	// comes and goes does not touch the timer.
	if w.wakeAt.IsZero() || due.Before(w.wakeAt) {
		w.arm(due)
	}
}

// remove takes t out of the schedule: from here on no renewal of it is sent.
func (w *watchdog) remove(t *tenure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.slot >= 0 {
		w.take(t.slot)
	}
}

func (w *watchdog) arm(at time.Time) {
	if w.closed {
		return
	}
	w.wakeAt = at
	if w.timer == nil {
		w.timer = time.AfterFunc(time.Until(at), w.fire)
		return
	}
	w.timer.Reset(max(0, time.Until(at)))
}

func (w *watchdog) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

// fire does what is due and sets the timer anew.
func (w *watchdog) fire() {
	now := time.Now()
	var due []*tenure
	w.mu.Lock()
	for len(w.heap) > 0 {
		t := w.heap[0]
		if t.due.Add(-t.want.TTL / 60).After(now) {
			break
		}
		due = append(due, w.take(0))
	}
	w.wakeAt = time.Time{}
	w.mu.Unlock()

	var renew []*tenure
	for _, t := range due {
		if w.attend(t, now) {
			renew = append(renew, t)
		}
	}

	w.mu.Lock()
	if len(w.heap) > 0 && (w.wakeAt.IsZero() || w.heap[0].due.Before(w.wakeAt)) {
		w.arm(w.heap[0].due)
	}
	w.mu.Unlock()
	w.renew(renew)
}

// attend ends t if its time is over, else puts it back and tells whether it is to be renewed.
func (w *watchdog) attend(t *tenure, now time.Time) (renew bool) {
	t.gate.shard.Lock()
	if t.state != held && t.state != parked {
		t.gate.shard.Unlock()
		return false
	}
	if !now.Before(t.deadline) {
		after := t.expire()
		t.gate.shard.Unlock()
		after()
		return false
	}
	if t.renew && !t.renewing && !t.renewAt.Add(-t.want.TTL/60).After(now) {
		t.renewing, renew = true, true
	}
	w.put(t, t.nextEvent())
	t.gate.shard.Unlock()
	return renew
}

// expire ends a tenure whose deadline has passed. The shard is locked; what it returns is called afterwards.
func (t *tenure) expire() (after func()) {
	why := "expired"
	if t.failures > 0 {
		why = "unavailable"
	}
	after = t.lose(why, lossError("%q: its time of %v has passed without a renewal", t.want.Key, t.want.TTL))
	// By the server's clock a little of the TTL is left; nobody should have to wait for it.
	t.locks.undo.add(t.op(Release), true)
	return after
}

// renew sends the renewals: per node, in batches of leases with about the same time left.
func (w *watchdog) renew(due []*tenure) {
	routes := map[string][]*tenure{}
	for _, t := range due {
		name := w.locks.backend.Route(t.want.Key)
		routes[name] = append(routes[name], t)
	}
	for _, ts := range routes {
		parallel := make(chan struct{}, renewParallel)
		go func() {
			for len(ts) > 0 {
				n := sameTTL(ts, renewBatch)
				batch := ts[:n]
				ts = ts[n:]
				parallel <- struct{}{}
				go func() {
					w.renewBatch(batch)
					<-parallel
				}()
			}
		}()
	}
}

// sameTTL returns how many of the first of ts may share a batch: up to most, with TTLs that do not differ by more
// than half, since a trip's limit follows the shortest.
func sameTTL(ts []*tenure, most int) int {
	n := 1
	for n < len(ts) && n < most && ts[n].want.TTL*3/2 >= ts[0].want.TTL && ts[n].want.TTL <= ts[0].want.TTL*3/2 {
		n++
	}
	return n
}

func (w *watchdog) renewBatch(batch []*tenure) {
	ops := make([]*Op, 0, len(batch))
	live := batch[:0:0]
	limit := tripLimit
	for _, t := range batch {
		t.gate.shard.Lock()
		if t.state == held || t.state == parked {
			ops, live = append(ops, t.op(Extend)), append(live, t)
			limit = min(limit, max(t.want.TTL/renewTrips, MinTTL/4))
		}
		t.gate.shard.Unlock()
	}
	if len(ops) == 0 {
		return
	}
	sent := time.Now()
	w.locks.trips.make(context.Background(), nil, sent.Add(limit), ops)
	took := time.Since(sent)
	for i, t := range live {
		w.settle(t, ops[i], sent, took)
	}
}

// settle applies the answer to one renewal.
func (w *watchdog) settle(t *tenure, op *Op, sent time.Time, took time.Duration) {
	t.gate.shard.Lock()
	t.renewing = false
	slack := time.Until(t.deadline)
	var tracer Tracer
	var e Renewal
	if h := t.hold; h != nil && h.story != nil {
		tracer = h.tracer
		e = Renewal{Backend: w.locks.backend.Name(), Key: h.leases.key, Kind: t.want.Kind, Mark: h.mark,
			TTL: t.want.TTL, Slack: slack, Took: took, Err: op.Err}
	}
	gone := t.state != held && t.state != parked
	t.gate.shard.Unlock()
	after := w.locks.renewed(t, op, sent, t.want.TTL)
	if tracer != nil && !gone {
		if op.Err == nil && op.Verdict != OK {
			e.Err = t.lossFor(op.Verdict)
		}
		tracer.Renewed(e)
	}
	after()
}

// renewed applies the answer to an Extend that was sent at sent. A tenure that has left the schedule is not touched.
func (locks *Locks) renewed(t *tenure, op *Op, sent time.Time, ttl time.Duration) (after func()) {
	t.gate.shard.Lock()
	defer t.gate.shard.Unlock()
	if t.state != held && t.state != parked {
		return func() {}
	}
	now := time.Now()
	switch {
	case !now.Before(t.deadline):
		return t.expire() // an answer that comes too late revives nothing
	case op.Err != nil:
		t.failures++
		pause := min(t.want.TTL/30<<min(t.failures-1, 3), time.Second)
		t.renewAt = now.Add(max(pause, time.Millisecond))
	case op.Verdict == OK:
		t.failures = 0
		t.home, t.degraded, t.degradedWhy = op.Home, op.Degraded, op.DegradedReason
		if until := validUntil(sent, ttl); until.After(t.deadline) {
			t.deadline = until
		}
		t.renewAt = sent.Add(t.want.TTL / 3)
	default:
		return t.lose(lossReason(op.Verdict), t.lossFor(op.Verdict))
	}
	locks.watchdog.put(t, t.nextEvent())
	return func() {}
}

// The heap, by due; each tenure knows its slot.

func (w *watchdog) fix(i int) {
	for i > 0 {
		up := (i - 1) / 2
		if !w.heap[i].due.Before(w.heap[up].due) {
			break
		}
		w.swap(i, up)
		i = up
	}
	for {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < len(w.heap) && w.heap[down].due.Before(w.heap[least].due) {
				least = down
			}
		}
		if least == i {
			return
		}
		w.swap(i, least)
		i = least
	}
}

func (w *watchdog) swap(i, j int) {
	w.heap[i], w.heap[j] = w.heap[j], w.heap[i]
	w.heap[i].slot, w.heap[j].slot = i, j
}

// take removes and returns the tenure at slot i.
func (w *watchdog) take(i int) *tenure {
	t, last := w.heap[i], len(w.heap)-1
	w.swap(i, last)
	w.heap[last] = nil
	w.heap = w.heap[:last]
	if i < last {
		w.fix(i)
	}
	t.slot = -1
	return t
}
