package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// round is one operation asked of all nodes at once. It is decided as soon as the answers that have come in settle it,
// whatever the others will say; what they say then is noted, and undone where it must be.
type round struct {
	lock                  *redLock
	op                    *Op // for Do's goroutine alone
	action                string
	key, name, companion  string
	engine, millis, label string
	ttl, keep             time.Duration
	fences                int
	fence, counter        int64 // of a write-back, and the round whose greatest counter it brings to a quorum
	of                    *round
	tie                   int64 // which of a reader's fences is its own
	proposal              int64
	hold                  *quorumHold
	sent, limit           time.Time
	done                  chan struct{} // closed when decided

	notAfter []int64 // by node, and for the node's goroutine alone: it does nothing after that, in the node's time

	mu      sync.Mutex
	votes   []vote // by node
	silent  int    // nodes that have not answered yet
	decided bool
	failed  bool // decided, and nothing of it may stay at any node
	verdict Verdict
	err     error
}

// vote is the answer of one node.
type vote struct {
	answer   // mark is 0 when it has not answered, and '!' with err
	standing standing
}

func (b *redLock) newRound(op *Op) *round {
	name := lockName(op.Key)
	r := &round{lock: b, op: op, action: letters[actionLetter(op)], key: op.Key, name: name, companion: companionName("wait", name),
		engine: op.Waiter, millis: millis(op), label: meta(op), ttl: op.TTL, keep: op.Keep, fences: max(1, op.Fences)}
	r.hold = b.holdOf(op)
	if r.hold.shared {
		r.fences = readerFences
	}
	switch op.Action {
	case Try, Refill:
		r.proposal = b.propose(r.fences)
	case Release:
		r.hold.end()
	}
	return r.start()
}

// start readies the round to be sent.
func (r *round) start() *round {
	r.sent, r.done = time.Now(), make(chan struct{})
	r.votes, r.silent = make([]vote, len(r.lock.nodes)), len(r.lock.nodes)
	r.notAfter = make([]int64, len(r.lock.nodes))
	limit := r.lock.timeout
	switch r.action {
	case "t", "w", "b", "e", "f":
		limit = min(limit, r.ttl/4)
	}
	r.limit = r.sent.Add(limit)
	return r
}

// follow returns a round on the same lock.
func (r *round) follow(action string) *round {
	w := &round{lock: r.lock, op: r.op, action: action, key: r.key, name: r.name, companion: r.companion,
		engine: r.engine, ttl: r.ttl, fences: r.fences, hold: r.hold}
	return w.start()
}

// request implements errand.
func (r *round) request(n *node, q *request, now time.Time) bool {
	if now.After(r.limit) {
		return false
	}
	q.action, q.name, q.companion, q.owner, q.engine = r.hold.letter(r.action), r.name, r.companion, r.hold.owner, r.engine
	switch r.action {
	case "t", "w":
		q.text(r.millis)
		q.number(int64(r.fences))
		q.text(r.label)
		q.number(r.expires(n, r.limit))
		q.number(r.proposal)
	case "e", "k":
		r.requestFill(n, q, now)
	case "f":
		q.number(int64(r.fences))
		q.number(r.proposal)
	case "x":
		q.text(ceilMillis(2 * r.lock.timeout))
		q.number(r.expires(n, r.limit))
	case "b":
		q.number(r.fence)
		q.number(r.counter)
	}
	return true
}

// expires returns the time t as n shows it, after which the operation is to do nothing there.
func (r *round) expires(n *node, t time.Time) int64 {
	r.notAfter[n.index] = n.timeAt(t)
	return r.notAfter[n.index]
}

// requestFill writes the fields of an operation that fills the lock in where it is missing and was not deleted.
func (r *round) requestFill(n *node, q *request, now time.Time) {
	at := r.hold.place(n.index)
	fence, deadline := r.hold.term(r.action == "k")
	notAfter, life := int64(0), at.life
	if at.state != deleted && now.Before(deadline) {
		notAfter = r.expires(n, sooner(r.limit, deadline))
	}
	if at.state == nowhere {
		life = "-"
	}
	q.text(r.millis)
	q.text(r.label)
	q.number(notAfter)
	q.text(life)
	q.number(at.until)
	if r.action == "e" {
		q.number(fence)
	}
}

// answer implements errand.
func (r *round) answer(n *node, a answer) {
	v := r.read(n, a)
	r.mu.Lock()
	r.silent--
	if r.action != "b" || r.votes[n.index].mark == 0 {
		r.votes[n.index] = v
	}
	switch {
	case !r.decided:
		r.decide(false)
	case r.verdict == OK && v.standing == pending:
		r.hold.promote(n.index, v.life)
	}
	failed, waitsInVain := r.failed, r.waitsInVain(n)
	r.mu.Unlock()
	if failed {
		r.undoAt(n)
	}
	if waitsInVain {
		n.push([]errand{leaving{r}})
	}
	if r.verdictIsOpen(v, n) {
		r.owe(n)
	}
}

// verdictIsOpen tells whether a release has to be repeated at the node.
func (r *round) verdictIsOpen(v vote, n *node) bool {
	if r.action != "r" && r.action != "k" {
		return false
	}
	return v.err != nil || !r.hold.settled(n.index, v.now)
}

// read turns an answer into a vote, and notes what it means for the hold.
func (r *round) read(n *node, a answer) vote {
	v := vote{answer: a}
	if v.err != nil {
		if !a.unsent {
			r.hold.loosen(n.index, r.notAfter[n.index])
		}
		v.mark, v.err = '!', fmt.Errorf("%s: %w", n.name, v.err)
		return v
	}
	switch v.mark {
	case 'G', 'O':
		r.lock.seen(v.counter)
	case 'U':
		v.left = r.lock.timeout // judged by then
	case 'T':
		v.err = fmt.Errorf("%s: %w", n.name, errTooLate)
	case 'X':
		v.err = fmt.Errorf("%w: %q", ErrConflict, r.key)
	}
	v.standing = r.stand(n.index, v)
	return v
}

// stand notes what the vote means for the hold.
func (r *round) stand(i int, v vote) standing {
	switch {
	case v.mark == 'G':
		r.hold.granted(i, v.nodeSays, r.ttl)
		return counts
	case r.action == "r" || r.action == "k":
		if v.mark == 'O' {
			r.hold.left(i)
			return counts
		}
		return r.hold.missing(i, v.nodeSays, v.mark == 'F')
	case r.action == "e" && (v.mark == 'O' || v.mark == 'N'):
		return r.hold.present(i, v.nodeSays, r.ttl)
	case (r.action == "f" || r.action == "b") && v.mark == 'O':
		return r.hold.present(i, v.nodeSays, 0)
	case v.mark == 'A' || v.mark == 'F':
		return r.hold.missing(i, v.nodeSays, v.mark == 'F')
	case v.mark == 'M':
		return r.hold.missing(i, v.nodeSays, false)
	case v.mark == 'O':
		return counts
	}
	return absent
}

// close ends the round where it is: why is nil when its time has passed, else the end of the caller's context.
func (r *round) close(why error) {
	r.mu.Lock()
	if !r.decided {
		if why != nil {
			r.fail(fmt.Errorf("%w: %w", ErrUnavailable, why))
		} else {
			r.decide(true)
		}
	}
	r.mu.Unlock()
	r.undoIfFailed()
}

// undoIfFailed takes back what the nodes have granted so far; those that answer later are seen to by answer.
func (r *round) undoIfFailed() {
	r.mu.Lock()
	failed, answered := r.failed, make([]bool, len(r.votes))
	for i := range r.votes {
		answered[i] = r.votes[i].mark != 0
	}
	r.mu.Unlock()
	if !failed {
		return
	}
	for i, n := range r.lock.nodes {
		if answered[i] {
			r.undoAt(n)
		}
	}
}

// undoAt has the node let go of what it may have granted.
func (r *round) undoAt(n *node) {
	r.mu.Lock()
	v := r.votes[n.index]
	r.mu.Unlock()
	at := r.hold.place(n.index)
	if v.mark == 'G' || at.state != nowhere || at.loose > 0 {
		r.owe(n)
	}
}

func (r *round) owe(n *node) {
	r.hold.end()
	n.owe(&nodeDebt{hold: r.hold, name: r.name, companion: r.companion, engine: r.engine,
		until: time.Now().Add(r.ttl + r.lock.timeout)})
}

// waitsInVain tells whether the node counts the engine among those that wait, though others have granted what it refused:
// readers would be kept out there, and the next holder's hand-offs be cut short. The round is locked.
func (r *round) waitsInVain(n *node) bool {
	return r.action == "w" && r.decided && r.verdict == Granted && r.votes[n.index].mark == 'R'
}

// leaving takes the engine from those that wait, once: else its time there passes.
type leaving struct{ *round }

func (l leaving) request(_ *node, q *request, _ time.Time) bool {
	q.action, q.name, q.companion, q.owner, q.engine = "l", l.name, l.companion, l.hold.owner, l.engine
	return true
}

func (leaving) answer(*node, answer) {}

// leaveIfGranted sees to the nodes that had refused when the round was decided; those that answer later are seen to by
// answer.
func (r *round) leaveIfGranted() {
	for _, n := range r.lock.nodes {
		r.mu.Lock()
		waits := r.waitsInVain(n)
		r.mu.Unlock()
		if waits {
			n.push([]errand{leaving{r}})
		}
	}
}

// finish decides the round. It is locked.
func (r *round) finish(v Verdict, err error) {
	r.decided, r.verdict, r.err = true, v, err
	close(r.done)
}

// fail decides the round with an error, and has whatever it took given back. It is locked.
func (r *round) fail(err error) {
	if r.action == "t" || r.action == "w" {
		r.failed = true
	}
	r.finish(None, err)
}

// decide decides the round if its votes do; final: no more will come. It is locked.
func (r *round) decide(final bool) {
	final = final || r.silent <= 0
	switch r.action {
	case "t", "w":
		r.decideTry(final)
	case "e", "f":
		r.decideHeld(final)
	case "r", "k":
		r.decideRelease(final)
	case "b":
		r.decideWriteBack(final)
	case "i":
		if final {
			r.finish(OK, nil)
		}
	default:
		r.decideSimple(final)
	}
}

// count returns how many votes are as is says.
func (r *round) count(is func(*vote) bool) (n int) {
	for i := range r.votes {
		if is(&r.votes[i]) {
			n++
		}
	}
	return n
}

// decideTry: a quorum grants it; or one can no more, and a node reports a holder; or all who will answer have.
func (r *round) decideTry(final bool) {
	granted := r.count(func(v *vote) bool { return v.mark == 'G' })
	holders := r.count(func(v *vote) bool { return v.mark == 'R' || v.mark == 'C' })
	switch {
	case granted >= r.lock.quorum:
		r.finish(Granted, nil)
	case holders > 0 && (final || granted+r.silent < r.lock.quorum):
		r.failed = true
		r.finish(Refused, nil)
	case final:
		r.fail(r.noQuorum())
	}
}

// decideHeld: a quorum of nodes has had the lock all the time; or so many have not, though they would remember, that
// there can be no such quorum any more; or it is not known, by silence or lost memory.
func (r *round) decideHeld(final bool) {
	kept := r.count(func(v *vote) bool { return v.standing == counts })
	away := r.count(func(v *vote) bool { return v.standing == removed || v.standing == taken })
	switch {
	case kept >= r.lock.quorum:
		r.finish(OK, nil)
		for i := range r.votes {
			if r.votes[i].standing == pending {
				r.hold.promote(i, r.votes[i].life)
			}
		}
	case away > len(r.lock.nodes)-r.lock.quorum:
		r.failed = true
		r.finish(r.lossVerdict(), nil)
	case final:
		r.finish(None, r.noQuorum())
	}
}

// decideRelease: no quorum has the lock any more. It had been lost when it was taken away from so many nodes that none
// had it before.
func (r *round) decideRelease(final bool) {
	let := r.count(func(v *vote) bool { return v.mark != 0 && v.err == nil })
	freed := r.count(func(v *vote) bool { return v.mark == 'O' })
	away := r.count(func(v *vote) bool { return v.standing == removed || v.standing == taken })
	spare := len(r.lock.nodes) - r.lock.quorum
	switch {
	case freed >= r.lock.quorum:
		r.finish(OK, nil)
	case away > spare:
		r.finish(r.lossVerdict(), nil)
	case let >= r.lock.quorum && (final || away+r.silent <= spare):
		if freed == 0 {
			r.finish(Absent, nil)
		} else {
			r.finish(OK, nil)
		}
	case final:
		r.finish(None, r.noQuorum())
	}
}

func (r *round) lossVerdict() Verdict {
	if r.count(func(v *vote) bool { return v.standing == taken }) > 0 {
		return Foreign
	}
	return Absent
}

// decideWriteBack: a quorum of nodes that hold the lock has the counter.
func (r *round) decideWriteBack(final bool) {
	reached := r.count(func(v *vote) bool { return v.standing == counts && v.counter >= r.counter })
	switch {
	case reached >= r.lock.quorum:
		r.finish(OK, nil)
	case final:
		r.finish(None, r.noQuorum())
	}
}

// decideSimple: a quorum has done it. Force waits for the others too: one that came later would take the lock from the
// next holder, who is never given it back there.
func (r *round) decideSimple(final bool) {
	if r.action == "x" && !final {
		return
	}
	done := r.count(func(v *vote) bool { return v.mark == 'O' })
	conflicts := r.count(func(v *vote) bool { return v.mark == 'X' })
	switch {
	case done >= r.lock.quorum:
		r.finish(OK, nil)
	case conflicts >= r.lock.quorum:
		r.finish(None, fmt.Errorf("%w: %q", ErrConflict, r.key))
	case final:
		r.finish(None, r.noQuorum())
	}
}

var (
	// errNoQuorum is in the errors of rounds that found no quorum. Each node had its time, so the engine does not try
	// again on behalf of a caller.
	errNoQuorum = errors.New("no quorum of nodes")
	// errTooLate: by the node's clock. It may be that clock that has gone on since it was last seen, by a step or in an
	// hour without a word; the answer tells of it, so to try again is worth while.
	errTooLate = fmt.Errorf("%w: it came too late by the node's clock", ErrUnavailable)
)

// noQuorum says why there is none. The round is locked.
func (r *round) noQuorum() error {
	var lefts []time.Duration
	var errs []error
	mine, late, conflicts, denials := 0, 0, 0, 0
	for i := range r.votes {
		v := &r.votes[i]
		switch {
		case v.standing == counts:
			mine++
		case v.mark == 0:
			errs = append(errs, fmt.Errorf("%s: no answer within %v", r.lock.nodes[i].name,
				r.limit.Sub(r.sent).Round(time.Millisecond)))
		case v.mark == 'Q', v.mark == 'U':
			lefts = append(lefts, v.left)
		case v.err != nil:
			errs = append(errs, v.err)
			switch {
			case errors.Is(v.err, errTooLate):
				late++
			case errors.Is(v.err, ErrConflict):
				conflicts++
			case errors.Is(v.err, ErrDenied):
				denials++
			}
		}
	}
	quorum, spare := r.lock.quorum, len(r.lock.nodes)-r.lock.quorum
	switch why := errors.Join(errs...); {
	case conflicts > spare:
		return fmt.Errorf("%w: %q at %d nodes", ErrConflict, r.key, conflicts)
	case denials > spare:
		return fmt.Errorf("%w: %w", ErrDenied, why)
	case mine+len(lefts) >= quorum && len(lefts) > 0:
		slices.Sort(lefts)
		return &QuarantineError{RetryAfter: lefts[quorum-mine-1]}
	case mine+late >= quorum && late > 0:
		return why
	case why == nil:
		return fmt.Errorf("%w: %w has the lock", ErrUnavailable, errNoQuorum)
	default:
		return fmt.Errorf("%w: %w: %w", ErrUnavailable, errNoQuorum, why)
	}
}

// conclude writes the outcome into the operation, and returns the round that must follow, if any.
func (r *round) conclude() *round {
	r.undoIfFailed()
	if r.action == "w" {
		r.leaveIfGranted()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	op := r.op
	if r.of != nil {
		return r.concludeWriteBack()
	}
	op.Verdict, op.Err, op.Home = r.verdict, r.err, r.hold
	op.Outside = r.count(func(v *vote) bool { return v.outside }) > 0
	switch {
	case op.Action == Try && r.verdict != Granted:
		// What it may have taken is undone by the nodes' own queues.
		op.Unsent, op.Home = true, nil
		r.refuse()
	case op.Action == Try, op.Action == Refill && r.verdict == OK:
		counter, agreed := r.agree()
		if !agreed {
			return r.writeBack(counter)
		}
		r.reserved(counter)
	case op.Action == Extend && r.verdict == OK:
		r.hold.prolong(validUntil(r.sent, r.ttl))
	}
	return nil
}

// reserved gives the operation its fences, of which counter is the last.
func (r *round) reserved(counter int64) {
	op := r.op
	op.Fence, op.Fenced = r.first(counter), r.fences
	if r.hold.shared {
		op.Fenced = 1
	}
	if op.Action == Try {
		r.hold.setFence(op.Fence)
		r.hold.prolong(validUntil(r.sent, r.ttl))
	}
}

// concludeWriteBack is conclude of a round that followed a grant or a refill, of which it completes the outcome.
func (r *round) concludeWriteBack() *round {
	of := r.of
	of.mu.Lock()
	if r.verdict == OK {
		of.reserved(r.counter)
		of.mu.Unlock()
		return nil
	}
	of.op.Verdict, of.op.Err = None, r.err
	if of.op.Action == Try {
		of.failed, of.op.Unsent, of.op.Home = true, true, nil
	}
	of.mu.Unlock()
	of.undoIfFailed()
	return nil
}

// refuse tells what is known of those who hold the lock. The round is locked.
func (r *round) refuse() {
	if r.verdict != Refused {
		return
	}
	op := r.op
	tags := map[string]int{}
	most, completed, granted := 0, 0, 0
	var lefts []time.Duration
	for i := range r.votes {
		switch v := &r.votes[i]; v.mark {
		case 'R':
			tags[v.tag]++
			most = max(most, tags[v.tag])
			lefts = append(lefts, v.left)
			if v.note != "" {
				op.HolderNote = v.note
			}
		case 'C':
			completed++
			lefts = append(lefts, v.left)
		case 'G':
			granted++
		}
	}
	op.Completed = completed >= r.lock.quorum
	op.Split = most < r.lock.quorum && !op.Completed
	slices.Sort(lefts)
	op.Left = lefts[max(0, min(len(lefts), r.lock.quorum-granted)-1)]
}

// ask carries out an operation that has no place in Op, and returns the decided round.
func (b *redLock) ask(ctx context.Context, action, key string) *round {
	name := lockName(key)
	op := &Op{Hold: Hold{Key: key}, Owner: "-"}
	r := &round{lock: b, op: op, action: action, key: key, name: name, companion: companionName("wait", name),
		ttl: b.maxTTL, hold: b.holdOf(op)}
	r.start()
	b.send([]*round{r})
	b.await(ctx, []*round{r})
	return r
}
