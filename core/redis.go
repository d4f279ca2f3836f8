package core

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
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
	b.client = obedient(rdb)
	b.hub = newHub(rdb)
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

// run calls the script once and reads the replies into ops.
func (b *redisBackend) run(ctx context.Context, ops []*Op) error {
	c := newCall(lockScript, b.fenceKey(ops[0]), len(ops))
	engine := ""
	for _, op := range ops {
		name := lockName(op.Key)
		c.keys = append(c.keys, name, companionName("wait", name))
		if op.Waiter != "" {
			engine = op.Waiter
		}
	}
	c.args = append(c.args, engine, "PUBLISH", waiterMillis)
	for _, op := range ops {
		c.args = append(c.args, action(op), op.Owner, millis(op), max(1, op.Fences), meta(op))
	}
	reply, err := c.send(ctx, b.client)
	if err != nil {
		return err
	}
	if len(reply) != len(ops) {
		return fmt.Errorf("%w: the script answered %d of %d operations", ErrUnavailable, len(reply), len(ops))
	}
	for i, op := range ops {
		text, _ := reply[i].(string)
		read(op, text)
	}
	return nil
}

var waiterMillis = strconv.FormatInt(WaiterTTL.Milliseconds(), 10)

func (b *redisBackend) fenceKey(op *Op) string {
	if b.cluster {
		return reserved + "fence:{" + slotTag(slotOf(lockName(op.Key))) + "}"
	}
	return reserved + "fence"
}

func action(op *Op) string {
	switch op.Action {
	case Try:
		if op.Waiter != "" {
			return "w"
		}
		return "t"
	case Extend:
		return "e"
	case Refill:
		return "f"
	case Leave:
		return "l"
	default:
		if op.Keep > 0 {
			return "k"
		}
		return "r"
	}
}

// millis is the time that goes with op, rounded up: a lock must not end in Redis before it ends here.
func millis(op *Op) string {
	d := op.TTL
	if op.Keep > 0 {
		d = op.Keep
	}
	return strconv.FormatInt((d + time.Millisecond - 1).Milliseconds(), 10)
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

// read reads one reply; lua/lock.lua says what they look like.
func read(op *Op, reply string) {
	if reply == "" {
		op.Err = fmt.Errorf("%w: the script's answer is empty", ErrUnavailable)
		return
	}
	f := fields{reply[1:]}
	switch reply[0] {
	case 'G', 'O':
		op.Verdict = OK
		if reply[0] == 'G' {
			op.Verdict = Granted
		}
		op.Fence, op.Fenced, op.Outside = f.number(), int(f.number()), f.number() > 0
	case 'R':
		op.Verdict = Refused
		op.Left, op.HolderNote = time.Duration(f.number())*time.Millisecond, f.rest()
	case 'C':
		op.Verdict, op.Completed = Refused, true
		op.Left = time.Duration(f.number()) * time.Millisecond
	case 'A':
		op.Verdict = Absent
	case 'F':
		op.Verdict = Foreign
	case 'X':
		op.Err = fmt.Errorf("%w: %q", ErrConflict, op.Key)
	default:
		op.Err = fmt.Errorf("%w: the script's answer is not understood", ErrUnavailable)
	}
}

// fields reads ",a,b,…".
type fields struct{ text string }

func (f *fields) next() string {
	text := strings.TrimPrefix(f.text, ",")
	i := strings.IndexByte(text, ',')
	if i < 0 {
		f.text = ""
		return text
	}
	f.text = text[i:]
	return text[:i]
}

func (f *fields) number() int64 {
	n, _ := strconv.ParseInt(f.next(), 10, 64)
	return n
}

func (f *fields) rest() string { return strings.TrimPrefix(f.text, ",") }

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
