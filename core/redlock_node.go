package core

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// node is one server of a RedLock, and the queue in front of it. One goroutine serves the queue while it is not empty,
// a batch at a time; so a node that hangs costs one goroutine and a bounded queue, however many locks want it.
type node struct {
	lock   *redLock
	index  int
	name   string
	server *server
	hub    *hub

	connector connector

	mu      sync.Mutex
	queue   []errand
	serving bool // its goroutine runs
	idle    bool // and waits for kick
	kick    chan struct{}
	known   bool // it has answered once, so its clock is known
	double  bool // it is the same server as another node: not used, until the judge finds it to be one of its own
	silent  bool // its last trip has failed
	clock   nodeClock
	marker  marker // as it was last seen; zero: not known
	process nodeProcess
	debts   nodeDebts
}

// errand is something that a node is asked to do. answer is called once for each node to which it was pushed, holding
// no lock.
type errand interface {
	// request writes the operation for n at now, or says that it is not worth sending any more.
	request(n *node, q *request, now time.Time) bool
	answer(n *node, a answer)
}

// request is one operation of lua/redlock.lua.
type request struct {
	action, name, companion, owner, engine string
	fields                                 [mostFields]string
	count                                  int
}

const mostFields = 6

func (q *request) text(field string)  { q.fields[q.count], q.count = field, q.count+1 }
func (q *request) number(field int64) { q.text(strconv.FormatInt(field, 10)) }

// answer is what became of an errand at a node.
type answer struct {
	nodeSays
	mark    byte // as in lua/redlock.lua; 0: err
	counter int64
	outside bool
	left    time.Duration
	tag     string
	note    string
	waiters int
	readers bool       // what stands there
	stands  []standsAt // for an inspection
	err     error
	unsent  bool // with err: it has certainly done nothing, and never will
}

// standsAt is the lock of one holder at a node: its value, as lua/lock.lua says, and what is left of it.
type standsAt struct {
	value string
	left  time.Duration
}

// nodeSays is what each answer of a node says about the node.
type nodeSays struct {
	life       string        // of its memory; "-" when it has none, "?" when nothing that was asked depends on it
	now        int64         // its time in µs
	quarantine time.Duration // what is left of it
}

const maxQueue = 4096 // errands in front of a node

var (
	errQueueFull  = fmt.Errorf("%w: too much is waiting for the node already", ErrUnavailable)
	errTooOld     = fmt.Errorf("%w: not sent in time", ErrUnavailable)
	errNotKnown   = fmt.Errorf("%w: not enrolled yet", ErrUnavailable)
	errSameServer = fmt.Errorf("%w: the same server as another node", ErrInvalidOption)
)

func newNode(b *redLock, index int, rdb redis.UniversalClient) *node {
	n := &node{lock: b, index: index, name: "node " + strconv.Itoa(index), server: serverOf("", rdb),
		kick: make(chan struct{}, 1)}
	n.hub = newHub(func(string) *server { return n.server })
	if c, ok := rdb.(*redis.Client); ok && c.Options().Addr != "" {
		n.name = c.Options().Addr
	}
	return n
}

// push queues errands, and answers those for which there is no room.
func (n *node) push(errands []errand) {
	n.mu.Lock()
	fit := min(len(errands), max(0, maxQueue-len(n.queue)))
	n.queue = append(n.queue, errands[:fit]...)
	n.wakeLocked()
	n.mu.Unlock()
	for _, e := range errands[fit:] {
		e.answer(n, answer{err: errQueueFull, unsent: true})
	}
}

// wakeLocked has the queue served: by the goroutine that does, or by a new one.
func (n *node) wakeLocked() {
	switch {
	case len(n.queue) == 0 && !n.debts.closing:
	case !n.serving && len(n.queue) > 0:
		n.serving = true
		n.lock.running.begin()
		go n.serve()
	case n.idle:
		n.idle = false
		n.kick <- struct{}{}
	}
}

// serveLinger is for how long the goroutine waits for more: a new one would have to grow its stack again.
const serveLinger = time.Second

// serve makes one trip after the other while there is something in the queue.
func (n *node) serve() {
	defer n.lock.running.end()
	linger := time.NewTimer(serveLinger)
	defer linger.Stop()
	batch := make([]errand, 0, 4)
	for {
		n.mu.Lock()
		batch = append(batch[:0], n.queue[:min(len(n.queue), maxBatch)]...)
		rest := copy(n.queue, n.queue[len(batch):])
		clear(n.queue[rest:])
		n.queue = n.queue[:rest]
		n.idle = len(batch) == 0 && !n.debts.closing
		n.serving = len(batch) > 0 || n.idle
		serving := n.serving
		known, double, hopeless := n.known, n.double, n.silent && n.debts.closing
		n.mu.Unlock()
		switch {
		case !serving:
			return
		case len(batch) == 0:
			if !n.linger(linger) {
				return
			}
		case hopeless:
			reject(n, batch, errTooOld) // each would take as long as the last
		case double:
			reject(n, batch, errSameServer)
			n.lock.askJudge()
		case !known:
			reject(n, batch, errNotKnown)
			n.lock.askJudge()
		default:
			n.trip(batch)
		}
		clear(batch)
	}
}

// linger waits for the queue to fill. False: it has not, and nobody serves it any more.
func (n *node) linger(timer *time.Timer) bool {
	timer.Reset(serveLinger)
	select {
	case <-n.kick:
		return true
	case <-timer.C:
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.idle {
		<-n.kick // in the same moment
		return true
	}
	n.idle, n.serving = false, false
	return false
}

func reject(n *node, batch []errand, err error) {
	for _, e := range batch {
		e.answer(n, answer{err: err, unsent: true})
	}
}

// trip carries a batch to the node and hands out the answers.
func (n *node) trip(batch []errand) {
	requests, sent := n.compose(batch)
	if len(sent) == 0 {
		return
	}
	if i := secondEngine(requests); i > 0 { // a call is one engine's, which the script takes for the one that asks
		n.trip(sent[:i])
		n.trip(sent[i:])
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), n.lock.timeout)
	began := time.Now()
	text, err := n.call(ctx, requests)
	cancel()
	n.mu.Lock()
	n.silent = err != nil
	n.mu.Unlock()
	if err != nil && len(sent) > 1 && ofOne(err) {
		for _, e := range sent {
			n.trip([]errand{e})
		}
		return
	}
	if err != nil {
		n.connect(err)
		wrapped, unsent := classify(err)
		for _, e := range sent {
			e.answer(n, answer{err: wrapped, unsent: unsent})
		}
		return
	}
	f := fields{text: text}
	says := nodeSays{life: f.next(), now: f.number(), quarantine: f.milliseconds()}
	if news := f.next(); news != "" && !f.bad && !n.recognize(news) {
		for _, e := range sent {
			e.answer(n, answer{err: errSameServer})
		}
		n.lock.askJudge()
		return
	}
	if !f.bad {
		n.learn(says.now, began, time.Now())
	}
	for _, e := range sent {
		a := f.answer()
		a.nodeSays = says
		e.answer(n, a)
	}
	if says.life == "-" {
		n.lock.askJudge()
	}
	n.bringVariant()
}

// compose asks the errands what to send. What is too old by now is answered, and not in sent.
func (n *node) compose(batch []errand) (requests []request, sent []errand) {
	now := time.Now()
	requests, sent = make([]request, len(batch)), batch[:0]
	for _, e := range batch {
		if e.request(n, &requests[len(sent)], now) {
			sent = append(sent, e)
		} else {
			requests[len(sent)] = request{}
			e.answer(n, answer{err: errTooOld, unsent: true})
		}
	}
	return requests[:len(sent)], sent
}

// secondEngine returns where the first request stands that is another engine's than those before it; 0: none.
func secondEngine(requests []request) int {
	engine := ""
	for i := range requests {
		switch other := requests[i].engine; {
		case engine == "":
			engine = other
		case other != "" && other != engine:
			return i
		}
	}
	return 0
}

// call calls the script.
func (n *node) call(ctx context.Context, requests []request) (string, error) {
	c := newCall(redLockScript, 2+2*len(requests), 7+(2+mostFields)*len(requests))
	defer c.free()
	c.key(reserved + "fence")
	c.key(markerName)
	engine := ""
	for i := range requests {
		c.key(requests[i].name)
		c.key(requests[i].companion)
		if requests[i].engine != "" {
			engine = requests[i].engine
		}
	}
	c.arg(engine)
	c.arg(waiterMillis)
	c.arg(n.lock.maxMillis)
	n.mu.Lock()
	m, variant := n.marker, n.process.variant
	n.mu.Unlock()
	c.arg(m.text)
	c.arg(m.life)
	c.arg(m.run)
	c.arg(m.until)
	for i := range requests {
		q := &requests[i]
		c.arg(q.action)
		c.arg(q.owner)
		for _, field := range q.fields[:q.count] {
			c.arg(field)
		}
	}
	return n.callVariant(ctx, c, variant)
}

// marker is a node's marker as the script wants it told.
type marker struct{ text, life, run, until string }

// recognize notes the marker of a ready node, of which the script has said that it is good. False: it is another node's
// marker, so this client has come to lead to that one's server, and would give it a second vote.
func (n *node) recognize(text string) bool {
	f := strings.Split(text, ":")
	if len(f) != 6 {
		return true
	}
	for _, other := range n.lock.nodes {
		if other != n && other.lives(f[1]) {
			n.mu.Lock()
			n.double = true
			n.mu.Unlock()
			return false
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.marker = marker{text: text, life: f[1], run: "run_id:" + f[2], until: f[4]}
	return true
}

// lives tells whether the node was last seen in that life of its memory.
func (n *node) lives(life string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.marker.life == life
}

// answer reads the next answer; lua/redlock.lua says what they look like.
func (f *fields) answer() (a answer) {
	if mark := f.next(); len(mark) == 1 {
		a.mark = mark[0]
	}
	switch a.mark {
	case 'G', 'O':
		a.counter, a.outside = f.number(), f.number() > 0
	case 'R':
		a.left, a.tag = f.milliseconds(), f.next()
		a.note = f.take(f.number())
	case 'C', 'Q':
		a.left = f.milliseconds()
	case 'I':
		a.waiters, a.readers = int(f.number()), f.next() == "s"
		for n := f.number(); n > 0 && !f.bad; n-- {
			left := f.milliseconds()
			a.stands = append(a.stands, standsAt{f.take(f.number()), left})
		}
	case 'U', 'T', 'N', 'A', 'M', 'F', 'X':
	default:
		f.spoil()
	}
	if f.bad || a.mark == 'G' && a.counter < 1 {
		return answer{err: errAnswer}
	}
	return a
}

// nodeClock is what is known of a node's clock.
type nodeClock struct {
	at     int64     // its time in µs
	sent   time.Time // the call that told so was sent
	offset time.Duration
	told   time.Time // the Tracer was told
}

// clockPause is how often the Tracer hears of a clock that does not move.
const clockPause = 10 * time.Second

// learn takes the node's time from an answer.
func (n *node) learn(at int64, sent, received time.Time) {
	half := received.Sub(sent) / 2
	offset := time.UnixMicro(at).Sub(sent.Add(half))
	n.mu.Lock()
	moved := (offset - n.clock.offset).Abs() > half+10*time.Millisecond
	n.clock.at, n.clock.sent, n.clock.offset = at, sent, offset
	n.known = true
	tracer := n.lock.clocks.Load()
	tell := tracer != nil && (moved || received.Sub(n.clock.told) > clockPause)
	if tell {
		n.clock.told = received
	}
	n.mu.Unlock()
	if tell {
		(*tracer).ClockOffset(n.lock.Name(), n.name, offset)
	}
}

// timeAt returns what the node's clock shows at t, or a little more: the time of its last answer, which it gave after the
// call was sent.
func (n *node) timeAt(t time.Time) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.clock.at + t.Sub(n.clock.sent).Microseconds()
}
