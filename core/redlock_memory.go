package core

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	_ "embed"
)

// What becomes of a node without memory.
//
// Each node keeps a marker beside its locks (lua/redlock_mark.lua). One that is missing, or that names another run of the
// server, says that the node has forgotten locks: a snapshot brings back the marker and not the locks. How long the
// server has been up proves nothing, for FLUSHALL and a promoted replica have no start of their own.
//
// Such a node is judged by whoever finds it, in sight of all nodes. It is new, and may grant locks at once, only if all
// nodes answer and none has a marker, and then in two phases, so that no answer that is late can make a node ready that
// has lost its memory since: first all become new, and when all have, they become ready. Otherwise it becomes ready in
// quarantine: it grants nothing until the locks that it may have forgotten have run out, those of the greatest TTL that
// any node or the judge knows of.
//
// It is no first start because no *answering* node has a marker: three of five nodes that come back empty, while the two
// that remember are silent, would let a second holder in.
//
//	(none) ──▶ blank ──▶ new ──▶ ready           first start
//	             ╰─────────────▶ quarantined     any other; ready when its time has passed
//
// A node that is new when others are ready becomes ready too: all nodes were blank at one instant after it began to
// remember, and it has granted nothing since.

const markerName = reserved + "node"

//go:embed lua/redlock.lua
var redLockOwnSource string

//go:embed lua/redlock_readers.lua
var redLockReadersSource string

// redLockSource is one script: what it needs for readers is made, like all that a plain grant or release does not need,
// when it is first needed.
var redLockSource = strings.Replace(redLockOwnSource, "-- lua/redlock_readers.lua\n", redLockReadersSource, 1)

//go:embed lua/redlock_mark.lua
var redLockMarkSource string

var (
	redLockScript     = newScript(redLockSource)
	redLockMarkScript = newScript(redLockMarkSource)
)

const (
	blank = 'b'
	fresh = 'n'
	ready = 'r'
	// durable is what a ready node with the marker of another run is to the judge, if nodes are durable.
	durable = 'd'
)

// sight is what the judge saw of a node.
type sight struct {
	node    *node
	err     error // it did not answer
	run     string
	mark    string // the marker's text
	state   byte   // of the marker
	life    string
	ours    bool // the marker names this run of the server
	most    time.Duration
	until   int64 // the end of quarantine
	now     int64
	counter int64
}

// forgot tells whether the node has no memory.
func (s *sight) forgot() bool { return s.err == nil && (!s.ours || s.state == blank) }

func (s *sight) is(state byte) bool { return s.err == nil && s.ours && s.state == state }

// mark asks the node for its marker, and changes it if it is still seen: to state, with quarantine from now on.
func (n *node) mark(ctx context.Context, seen *sight, state byte, most, quarantine time.Duration, counter int64) sight {
	c := newCall(redLockMarkScript, 2, 8)
	defer c.free()
	c.key(markerName)
	c.key(reserved + "fence")
	text, run, life := "", "", newToken()[:16]
	if seen != nil {
		text, run = seen.mark, seen.run
		if seen.is(durable) {
			life = seen.life
		}
	}
	c.arg(text)
	c.arg(life)
	c.arg(strconv.Itoa(n.index))
	c.arg(string(rune(state)))
	c.arg(ceilMillis(most))
	c.arg(ceilMillis(quarantine))
	c.arg(strconv.FormatInt(counter, 10))
	c.arg(run)
	began := time.Now()
	reply, err := c.send(ctx, n.server.client)
	if err != nil {
		n.connect(err)
		err, _ = classify(err)
		return sight{node: n, err: fmt.Errorf("%s: %w", n.name, err)}
	}
	s := readSight(reply)
	s.node = n
	if s.err == nil {
		n.learn(s.now, began, time.Now())
	}
	return s
}

func readSight(reply string) (s sight) {
	answer := fields{text: reply}
	s.run, s.mark = answer.next(), answer.next()
	s.now, s.counter = answer.number(), answer.number()
	if answer.bad {
		return sight{err: errAnswer}
	}
	f := strings.Split(s.mark, ":")
	if len(f) != 6 || len(f[0]) != 1 {
		return s // not a marker: no memory
	}
	most, err := strconv.ParseInt(f[3], 10, 64)
	until, alsoErr := strconv.ParseInt(f[4], 10, 64)
	if err != nil || alsoErr != nil {
		return s
	}
	s.state, s.life, s.ours = f[0][0], f[1], f[2] == s.run
	s.most, s.until = time.Duration(most)*time.Millisecond, until
	return s
}

func ceilMillis(d time.Duration) string {
	return strconv.FormatInt((d + time.Millisecond - 1).Milliseconds(), 10)
}

// judge enrols nodes, one run at a time.
type judge struct {
	mu      sync.Mutex // held by who judges
	asked   sync.Mutex
	running bool
	next    time.Time // not before
	pause   time.Duration
}

const (
	judgePause  = 50 * time.Millisecond
	judgeAtMost = time.Second
	// judgePatience is how often the judge looks again while another one is in the midst of a first start.
	judgePatience = 10
)

// enrol looks at all nodes, twice at those that do not answer, and judges those without memory.
func (b *redLock) enrol() error {
	b.judge.mu.Lock()
	defer b.judge.mu.Unlock()
	for try := 0; ; try++ {
		seen := b.look()
		if err := b.refuseDoubles(seen); err != nil {
			return err
		}
		silent := 0
		for i := range seen {
			if seen[i].err != nil {
				silent++
			}
		}
		if silent > 0 && try == 0 {
			b.connected()
			continue
		}
		if b.pass(seen, try < judgePatience) || try >= judgePatience+3 {
			return nil
		}
		time.Sleep(judgePause)
	}
}

// askJudge has the nodes judged in the background, soon.
func (b *redLock) askJudge() {
	j := &b.judge
	j.asked.Lock()
	defer j.asked.Unlock()
	if j.running || time.Now().Before(j.next) {
		return
	}
	j.running = true
	b.running.begin()
	go func() {
		defer b.running.end()
		_ = b.enrol() // of two nodes that are one server, one is not used
		j.asked.Lock()
		defer j.asked.Unlock()
		j.running = false
		j.pause = min(max(2*j.pause, judgePause), judgeAtMost)
		if time.Since(j.next) > 2*judgeAtMost {
			j.pause = judgePause
		}
		j.next = time.Now().Add(j.pause)
	}()
}

// each calls do for every node at once, within the node timeout.
func (b *redLock) each(do func(ctx context.Context, n *node) sight) []sight {
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	seen := make([]sight, len(b.nodes))
	var all sync.WaitGroup
	for i, n := range b.nodes {
		all.Go(func() { seen[i] = do(ctx, n) })
	}
	all.Wait()
	return seen
}

func (b *redLock) look() []sight {
	return b.each(func(ctx context.Context, n *node) sight { return n.mark(ctx, nil, blank, 0, 0, 0) })
}

// refuseDoubles refuses the same server given twice; the later of the two is not used until it is seen to be another.
func (b *redLock) refuseDoubles(seen []sight) (err error) {
	by := map[string]*node{}
	for _, s := range seen {
		if s.err != nil {
			continue
		}
		first := by[s.run]
		if first == nil {
			by[s.run] = s.node
		} else if err == nil {
			err = fmt.Errorf("%w: RedLock: nodes %d and %d are the same server (run id %s)", ErrInvalidOption,
				first.index, s.node.index, s.run)
		}
		s.node.appears(s.life, first != nil)
	}
	return err
}

// appears notes what the judge has seen: of a node that is in another life by now the marker is not known.
func (n *node) appears(life string, double bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.double = double
	if double || n.marker.life != life {
		n.marker = marker{}
	}
}

// pass judges what was seen. False: look again, for something has changed meanwhile, or another judge is in the midst of
// a first start and patient says to leave it to him.
func (b *redLock) pass(seen []sight, patient bool) bool {
	all := len(b.nodes)
	var answered, forgot, blanks, freshs int
	most, counter := b.maxTTL, int64(0)
	for i := range seen {
		s := &seen[i]
		if s.err != nil {
			continue
		}
		if b.durable && !s.ours && s.state == ready {
			s.ours, s.state = true, durable
		}
		answered++
		most, counter = max(most, s.most), max(counter, s.counter)
		if s.forgot() {
			forgot++
		}
		if s.is(blank) {
			blanks++
		}
		if s.is(fresh) {
			freshs++
		}
	}
	if answered == all && blanks == all && !b.strict {
		return b.firstStart(seen, most)
	}
	if answered == all && blanks > 0 && blanks+freshs == all && !b.strict && patient {
		return false
	}
	return b.settle(seen, most, counter)
}

// firstStart makes all nodes new, and when all are, ready.
func (b *redLock) firstStart(seen []sight, most time.Duration) bool {
	first := b.each(func(ctx context.Context, n *node) sight {
		return n.mark(ctx, &seen[n.index], fresh, most, 0, 0)
	})
	for i := range first {
		// Another judge may have been there before; what counts is that the node remembers since it was seen blank.
		if s := &first[i]; !s.is(fresh) && !s.is(ready) || s.life != seen[i].life {
			return false
		}
	}
	return b.settle(first, most, 0)
}

// settle makes ready what is new, and quarantines what has no memory. It also tells the nodes of our greatest TTL.
func (b *redLock) settle(seen []sight, most time.Duration, counter int64) bool {
	var mu sync.Mutex
	settled := true
	b.each(func(ctx context.Context, n *node) (s sight) {
		switch was := &seen[n.index]; {
		case was.err != nil:
			return *was
		case was.forgot():
			// The TTLs of locks run by the nodes' clocks, which are not the same.
			s = n.mark(ctx, was, ready, most, most+drift(most), counter)
		case was.is(fresh), was.is(durable), was.most < b.maxTTL:
			left := time.Duration(max(0, was.until-was.now)) * time.Microsecond
			s = n.mark(ctx, was, ready, max(most, was.most), left, 0)
		default:
			return *was
		}
		if s.err == nil && !s.is(ready) {
			mu.Lock()
			settled = false
			mu.Unlock()
		}
		return s
	})
	return settled
}
