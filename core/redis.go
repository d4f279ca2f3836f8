package core

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis returns a Backend on one Redis server, a Sentinel set or a Cluster, by the client's type. It needs Redis 6 or
// newer, or Valkey. The client stays the caller's: it is neither closed nor changed, and its settings for retries do
// not change any outcome. A nil client is an error of New.
func Redis(rdb redis.UniversalClient) Backend {
	b := &redisBackend{name: "redis", given: rdb}
	if isNil(rdb) {
		return b
	}
	_, b.cluster = rdb.(*redis.ClusterClient)
	s := serverOf("", rdb)
	b.client = s.client
	b.hub = newHub(func(string) *server { return s })
	return b
}

type redisBackend struct {
	name    string
	given   redis.UniversalClient
	client  doer
	cluster bool
	hub     *hub
}

// Check is called by New.
func (b *redisBackend) Check() error {
	if b.client == nil {
		return fmt.Errorf("%w: Redis(nil): allowed is a client", ErrInvalidOption)
	}
	return nil
}

func (b *redisBackend) Name() string        { return b.name }
func (b *redisBackend) Route(string) string { return "" }

// Supports implements Supporter.
func (b *redisBackend) Supports(h Hold) error {
	if h.Kind != Exclusive || h.Fair {
		return fmt.Errorf("%w: %v holds are not there yet on %q", ErrInvalidOption, h.Kind, b.name)
	}
	return nil
}

// Do implements Backend: one script call for the batch, or one for each slot of a Cluster.
func (b *redisBackend) Do(ctx context.Context, ops []*Op) {
	if !b.cluster || len(ops) == 1 {
		b.runAll(ctx, ops)
		return
	}
	bySlot := map[int][]*Op{}
	for _, op := range ops {
		slot := slotOf(lockName(op.Key))
		bySlot[slot] = append(bySlot[slot], op)
	}
	done := make(chan struct{}, len(bySlot))
	for _, batch := range bySlot {
		go func() {
			b.runAll(ctx, batch)
			done <- struct{}{}
		}()
	}
	for range bySlot {
		<-done
	}
}

// runAll runs one batch. A script that breaks off in its midst has carried out an unknown part; its operations are then
// run one by one, where a grant finds itself and only the one at fault fails.
func (b *redisBackend) runAll(ctx context.Context, ops []*Op) {
	err := b.run(ctx, ops)
	if err == nil {
		return
	}
	if len(ops) > 1 && scriptBroke(err) {
		for _, op := range ops {
			if err := b.run(ctx, []*Op{op}); err != nil {
				fail(op, err)
			} else if op.Action == Release && op.Verdict == Absent {
				op.Verdict = OK
			}
		}
		return
	}
	for _, op := range ops {
		fail(op, err)
	}
}

//go:embed lua/lock.lua
var lockSource string

var lockScript = newScript(lockSource)

// run calls the script once and reads the replies into ops; lua/lock.lua says what goes where.
func (b *redisBackend) run(ctx context.Context, ops []*Op) error {
	c := newCall(2*len(ops)+1, 4*len(ops)+6)
	defer c.free()
	c.key(b.fenceKey(ops[0]))
	for _, op := range ops {
		name := lockName(op.Key)
		c.key(name)
		if op.Action != Extend && (op.Action != Try || op.Waiter != "") {
			c.key(companionName("wait", name))
		}
	}
	common := ops[0]
	c.arg(engineOf(ops))
	c.arg("PUBLISH")
	c.arg(waiterMillis)
	c.arg(millis(common))
	c.arg(meta(common))
	c.arg(actions(ops, common))
	for _, op := range ops {
		c.arg(op.Owner)
		if special(op, common) {
			c.arg(millis(op))
			c.arg(strconv.Itoa(max(1, op.Fences)))
			c.arg(meta(op))
		}
	}
	reply, err := c.send(ctx, b.client, lockScript)
	if err != nil {
		return err
	}
	answers := fields{reply}
	for _, op := range ops {
		answers.read(op)
	}
	return nil
}

// engineOf returns the engine that asks: a batch is one engine's.
func engineOf(ops []*Op) string {
	for _, op := range ops {
		if op.Waiter != "" {
			return op.Waiter
		}
	}
	return ""
}

var waiterMillis = strconv.FormatInt(WaiterTTL.Milliseconds(), 10)

// special tells whether op brings times and texts of its own.
func special(op, common *Op) bool {
	switch op.Action {
	case Try:
		return op.Fences > 1 || op.TTL != common.TTL || op.Label != common.Label || op.Note != "" || common.Note != ""
	case Release:
		return op.Keep > 0
	case Extend:
		return op.TTL != common.TTL
	}
	return op.Action == Refill
}

// actions returns the letters of ops.
func actions(ops []*Op, common *Op) string {
	if len(ops) == 1 {
		return letters[letter(ops[0], common)]
	}
	text := make([]byte, len(ops))
	for i, op := range ops {
		text[i] = letter(op, common)
	}
	return string(text)
}

var letters = func() (texts [128]string) {
	for i := range texts {
		texts[i] = string(rune(i))
	}
	return texts
}()

func letter(op, common *Op) byte {
	l := byte('l')
	switch op.Action {
	case Try:
		l = 't'
		if op.Waiter != "" {
			l = 'w'
		}
		if op.Waiting {
			l = 'v'
		}
	case Extend:
		l = 'e'
	case Refill:
		l = 'f'
	case Release:
		l = 'r'
		if op.Keep > 0 {
			l = 'k'
		}
	}
	if special(op, common) {
		l -= 'a' - 'A'
	}
	return l
}

func (b *redisBackend) fenceKey(op *Op) string {
	if b.cluster {
		return reserved + "fence:{" + slotTag(slotOf(lockName(op.Key))) + "}"
	}
	return reserved + "fence"
}

// millis is the time that goes with op, rounded up: a lock must not end in Redis before it ends here.
func millis(op *Op) string {
	d := op.TTL
	if op.Keep > 0 {
		d = op.Keep
	}
	ms := int64((d + time.Millisecond - 1) / time.Millisecond)
	if text := commonMillis.Load(); text != nil && text.ms == ms {
		return text.text
	}
	text := &millisText{ms, strconv.FormatInt(ms, 10)}
	commonMillis.Store(text)
	return text.text
}

// commonMillis is the text last used: most programs have one TTL.
var commonMillis atomic.Pointer[millisText]

type millisText struct {
	ms   int64
	text string
}

// meta is what stands in the lock for people and tracers: the label, and behind a NUL the note.
func meta(op *Op) string {
	label := op.Label
	if strings.IndexByte(label, 0) >= 0 {
		label = strings.ReplaceAll(label, "\x00", " ")
	}
	if op.Note == "" || op.Action != Try {
		return label
	}
	return label + "\x00" + op.Note
}

// fields reads the answers of lua/lock.lua, one after the other.
type fields struct{ text string }

func (f *fields) read(op *Op) {
	kind := f.next()
	switch kind {
	case "G", "O":
		op.Verdict = OK
		if kind == "G" {
			op.Verdict = Granted
		}
		op.Fence, op.Fenced, op.Outside = f.number(), int(f.number()), f.number() > 0
	case "R":
		op.Verdict = Refused
		op.Left = time.Duration(f.number()) * time.Millisecond
		op.HolderNote = f.take(int(f.number()))
	case "C":
		op.Verdict, op.Completed = Refused, true
		op.Left = time.Duration(f.number()) * time.Millisecond
	case "A":
		op.Verdict = Absent
	case "F":
		op.Verdict = Foreign
	case "X":
		op.Err, op.Unsent = fmt.Errorf("%w: %q", ErrConflict, op.Key), true
	default:
		op.Err = fmt.Errorf("%w: the script's answer is not understood", ErrUnavailable)
	}
}

// next takes a field and what ends it.
func (f *fields) next() string {
	for i := 0; i < len(f.text); i++ {
		if c := f.text[i]; c == ',' || c == ';' {
			field := f.text[:i]
			f.text = f.text[i+1:]
			return field
		}
	}
	field := f.text
	f.text = ""
	return field
}

func (f *fields) number() int64 {
	n, _ := strconv.ParseInt(f.next(), 10, 64)
	return n
}

// take takes n bytes, whatever they are, and the end of the answer.
func (f *fields) take(n int) string {
	if n < 0 || n >= len(f.text) {
		f.text = ""
		return ""
	}
	text := f.text[:n]
	f.text = f.text[n+1:]
	return text
}

// Watch implements Watcher.
func (b *redisBackend) Watch(ctx context.Context, key string, wake func(by string)) (stop func(), err error) {
	return b.hub.watch(ctx, companionName("wait", lockName(key)), wake)
}

// Probe implements Prober: it writes the probe's own key.
func (b *redisBackend) Probe(ctx context.Context, _ string) error {
	cmd := redis.NewCmd(ctx, "set", reserved+"probe", "1", "px", 1000)
	if err := b.client.Process(ctx, once{cmd}); err != nil {
		err, _ = classify(err)
		return err
	}
	return nil
}

// Close implements Closer.
func (b *redisBackend) Close() error {
	b.hub.close()
	return nil
}
