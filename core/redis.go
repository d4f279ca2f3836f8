package core

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis returns a Backend on one Redis server, a Sentinel set or a Cluster, by the client's type. It needs Redis 6 or
// newer, or Valkey. The client stays the caller's: it is neither closed nor changed, and its settings for retries and
// timeouts do not change any outcome.
//
// The client's hooks, such as those of redisotel, see the commands for locks only where its ContextTimeoutEnabled is
// set: go-redis makes no client that obeys contexts and has the hooks of one that does not.
//
// A nil client is an ErrInvalidOption of New, and so is a *redis.Ring, which sends a key to another server when the
// first does not answer for a moment: two could hold it then. What else implements redis.UniversalClient is taken for
// one server.
func Redis(rdb redis.UniversalClient) Backend { return newRedis("redis", rdb, lockDialect{}) }

func newRedis(name string, rdb redis.UniversalClient, d dialect) *redisBackend {
	b := &redisBackend{name: name, dialect: d}
	switch client := rdb.(type) {
	case nil:
		b.wrong = fmt.Errorf("%w: %s(nil): allowed is a client", ErrInvalidOption, name)
	case interface{ GetShardClients() []*redis.Client }:
		b.wrong = fmt.Errorf("%w: %s(%T): a Ring moves keys from a server that is away for a moment, so two could hold "+
			"one; allowed is a client of one server, a Sentinel set or a Cluster", ErrInvalidOption, name, rdb)
	case clusterClient:
		if isNil(rdb) {
			return newRedis(name, nil, d)
		}
		b.cluster = newCluster(client)
		b.hub = newHub(func(channel string) *server { return b.cluster.known(slotOf(channel)) })
		b.hub.strayed = b.cluster.strayed
		// With slots of the user's own making the servers are no Cluster, and know nothing of slots.
		real := client.Options().ClusterSlots == nil
		b.striped.Store(real)
		b.hub.sharded = real
	default:
		if isNil(rdb) {
			return newRedis(name, nil, d)
		}
		b.one = serverOf("", rdb)
		b.hub = newHub(func(string) *server { return b.one })
	}
	return b
}

// redisBackend carries operations to Redis, in the words of its dialect.
type redisBackend struct {
	name    string
	dialect dialect
	wrong   error    // why it cannot be used
	one     *server  // nil on a Cluster
	cluster *cluster // nil on one server
	hub     *hub
	// striped: each slot has a fence counter of its own, and what one script touches lies in one slot.
	striped atomic.Bool
}

// dialect is how operations are put to a server.
type dialect interface {
	// supports returns an ErrInvalidOption when it cannot carry such a hold.
	supports(backend string, h Hold) error
	// compose returns the script call that carries out ops, whose locks share the counter called fence.
	compose(ops []*Op, fence, publish string) *scriptCall
	// read reads the answer into ops.
	read(ops []*Op, answer string)
}

// Check is called by New.
func (b *redisBackend) Check() error { return b.wrong }

func (b *redisBackend) Name() string { return b.name }

// Route is the address of the server on a Cluster; "" as long as the slots are not known.
func (b *redisBackend) Route(key string) string {
	if b.cluster == nil {
		return ""
	}
	if s := b.cluster.known(slotOf(lockName(key))); s != nil {
		return s.name
	}
	return ""
}

// Supports implements Supporter.
func (b *redisBackend) Supports(h Hold) error {
	if h.Replicas > 0 && b.one != nil && b.one.whole == nil {
		return b.cannotWait()
	}
	return b.dialect.supports(b.name, h)
}

// Do implements Backend: one script call, or one for each slot of a Cluster, in one trip for each server.
func (b *redisBackend) Do(ctx context.Context, ops []*Op) {
	switch {
	case replicated(ops):
	case b.one != nil && !b.striped.Load():
		b.make(ctx, &part{server: b.one, ops: ops})
		return
	case len(ops) == 1:
		p := part{ops: ops, slot: slotOf(lockName(ops[0].Key))}
		if b.locate(ctx, &p) {
			b.make(ctx, &p)
		}
		return
	}
	b.spread(ctx, ops)
}

// part is what one script call carries out.
type part struct {
	server *server
	slot   int // where slots matter
	ops    []*Op
}

// spread makes the trips for operations that do not go in one call: all servers at once.
func (b *redisBackend) spread(ctx context.Context, ops []*Op) {
	var trips sync.WaitGroup
	byServer := map[*server][]*part{}
	for _, p := range b.divide(ops) {
		switch {
		case !b.locate(ctx, p):
		case p.ops[0].Replicas > 0 && p.ops[0].Action == Try:
			trips.Go(func() { b.replicate(ctx, p) })
		default:
			byServer[p.server] = append(byServer[p.server], p)
		}
	}
	for _, parts := range byServer {
		trips.Go(func() { b.pipeline(ctx, parts) })
	}
	trips.Wait()
}

// divide makes parts of operations, in their order. One that waits for replicas is a part of its own.
func (b *redisBackend) divide(ops []*Op) (parts []*part) {
	bySlot := map[int]*part{}
	striped := b.striped.Load()
	for _, op := range ops {
		slot := 0
		if striped || b.cluster != nil {
			slot = slotOf(lockName(op.Key))
		}
		p := bySlot[slot]
		if alone := op.Action == Try && op.Replicas > 0; p == nil || alone {
			p = &part{slot: slot}
			parts = append(parts, p)
			if !alone {
				bySlot[slot] = p
			}
		}
		p.ops = append(p.ops, op)
	}
	return parts
}

// locate finds the server of p, or fails its operations.
func (b *redisBackend) locate(ctx context.Context, p *part) bool {
	if b.cluster == nil {
		p.server = b.one
		return true
	}
	s, err := b.cluster.find(ctx, p.slot)
	if err != nil {
		for _, op := range p.ops {
			op.Verdict, op.Err, op.Unsent = None, err, true
		}
		return false
	}
	p.server = s
	return true
}

// make makes the trip for p.
func (b *redisBackend) make(ctx context.Context, p *part) {
	if err := b.run(ctx, p, p.server.client); err != nil {
		b.settle(ctx, p, err)
	}
}

// run makes one call of a script for p, over client.
func (b *redisBackend) run(ctx context.Context, p *part, client doer) error {
	call := b.compose(p)
	defer call.free()
	answer, err := call.send(ctx, client)
	if err == nil {
		b.dialect.read(p.ops, answer)
	}
	return err
}

func (b *redisBackend) compose(p *part) *scriptCall {
	return b.dialect.compose(p.ops, b.fence(p.slot), b.publish())
}

// fence returns the name of the counter that the locks of slot share.
func (b *redisBackend) fence(slot int) string {
	if b.striped.Load() {
		return fenceName(slot)
	}
	return reserved + "fence"
}

// publish returns the command that tells of a release. A script on a server older than 7 must not use SPUBLISH all the
// same.
func (b *redisBackend) publish() string {
	if b.hub.sharded {
		return "SPUBLISH"
	}
	return "PUBLISH"
}

// ask makes a call about key that is no operation: at the key's server, or where that one says.
func (b *redisBackend) ask(ctx context.Context, key string, compose func(fence, publish string) *scriptCall) (answer string, err error) {
	p := part{server: b.one, slot: slotOf(lockName(key))}
	if b.cluster != nil {
		if p.server, err = b.cluster.find(ctx, p.slot); err != nil {
			return "", err
		}
	}
	send := func() error {
		call := compose(b.fence(p.slot), b.publish())
		defer call.free()
		answer, err = call.send(ctx, p.server.client)
		return err
	}
	err = send()
	switch {
	case err == nil:
	case b.cluster != nil:
		err = b.follow(&p, err, send)
	case redis.HasErrorPrefix(err, "CROSSSLOT") && b.striped.CompareAndSwap(false, true):
		err = send()
	}
	if err != nil {
		err, _ = classify(err)
	}
	return answer, err
}

// pipeline makes one trip for all parts, which have the same server.
func (b *redisBackend) pipeline(ctx context.Context, parts []*part) {
	whole := parts[0].server.whole
	if len(parts) == 1 || whole == nil {
		for _, p := range parts {
			b.make(ctx, p)
		}
		return
	}
	pipe := whole.Pipeline()
	cmds := make([]*redis.StringCmd, len(parts))
	for i, p := range parts {
		call := b.compose(p)
		defer call.free()
		cmds[i] = call.command(ctx)
		_ = pipe.Process(ctx, onceText{cmds[i]}) // queues it
	}
	if err := execute(ctx, pipe); err != nil {
		for _, p := range parts {
			b.settle(ctx, p, err)
		}
		return
	}
	var again []*part
	for i, p := range parts {
		switch err := cmds[i].Err(); {
		case err == nil:
			b.dialect.read(p.ops, cmds[i].Val())
		case unknownScript(err):
			again = append(again, p)
		default:
			b.settle(ctx, p, err)
		}
	}
	if len(again) > 0 {
		b.make(ctx, again[0]) // brings the script along
		if len(again) > 1 {
			b.pipeline(ctx, again[1:])
		}
	}
}

// execute makes the trip of a pipeline. Each command has its own error; one is returned when the client broke off.
func execute(ctx context.Context, pipe redis.Pipeliner) (err error) {
	defer recovered(&err)
	_, _ = pipe.Exec(ctx)
	return nil
}

// settle deals with a call for p that failed with err.
func (b *redisBackend) settle(ctx context.Context, p *part, err error) {
	switch {
	case b.cluster != nil:
		err = b.follow(p, err, func() error { return b.run(ctx, p, p.server.client) })
	case redis.HasErrorPrefix(err, "MOVED"), redis.HasErrorPrefix(err, "ASK"):
		err = fmt.Errorf("%w: the server is one of a Cluster, which needs a client for it: %w", ErrInvalidOption, err)
	}
	switch {
	case err == nil:
	case redis.HasErrorPrefix(err, "CROSSSLOT") && b.striped.CompareAndSwap(false, true):
		b.spread(ctx, p.ops) // it is one of a Cluster, though the client does not look like it
	case len(p.ops) > 1 && ofOne(err):
		b.apart(ctx, p)
	default:
		b.fail(ctx, p, err)
	}
}

// fail fails the operations of p. What a script took before it was denied something, or met a companion that is none, is
// given back as far as that is allowed: nobody else does it, for such an error leaves no doubt.
func (b *redisBackend) fail(ctx context.Context, p *part, err error) {
	for _, op := range p.ops {
		fail(op, err)
		if op.Action == Try && (deniedInScript(err) || errors.Is(op.Err, ErrConflict) && scriptBroke(err)) {
			undo := &Op{Action: Release, Hold: op.Hold, Owner: op.Owner, Ticket: op.Ticket}
			_ = b.run(ctx, &part{server: p.server, slot: p.slot, ops: []*Op{undo}}, p.server.client)
		}
	}
}

// follow sends p elsewhere, as long as its server said so. It did nothing then, so this is no retry.
func (b *redisBackend) follow(p *part, err error, send func() error) error {
	for range maxHops {
		next := b.cluster.next(p.server, p.slot, err)
		if next == nil {
			break
		}
		p.server = next
		if err = send(); err == nil {
			break
		}
	}
	return err
}

// apart runs the operations of p one by one: a script that broke off in its midst has carried out an unknown part of
// them. A grant finds itself then, and only the one at fault fails.
func (b *redisBackend) apart(ctx context.Context, p *part) {
	for _, op := range p.ops {
		one := part{server: p.server, slot: p.slot, ops: []*Op{op}}
		if err := b.run(ctx, &one, p.server.client); err != nil {
			b.fail(ctx, &one, err)
		} else if op.Action == Release && op.Verdict == Absent {
			op.Verdict = OK
		}
	}
}

//go:embed lua/lock.lua
var lockSource string

var lockScript = newScript(lockSource)

// lockDialect is that of lua/lock.lua, and for holds of another kind of lua/kinds.lua; they say what goes where.
type lockDialect struct{}

func (lockDialect) supports(string, Hold) error { return nil }

func (lockDialect) compose(ops []*Op, fence, publish string) *scriptCall {
	switch {
	case ops[0].All:
		return composeAll(ops, fence)
	case !allPlain(ops):
		return composeKinds(ops, fence, publish)
	}
	c := newCall(lockScript, 2*len(ops)+1, 4*len(ops)+6)
	c.key(fence)
	companions := false
	for _, op := range ops {
		name := lockName(op.Key)
		c.key(name)
		if op.Action != Extend && (op.Action != Try || op.Waiter != "") {
			c.key(companionName("wait", name))
			companions = true
		}
	}
	common := ops[0]
	c.arg(actions(ops, common))
	c.arg(millis(common))
	c.arg(meta(common))
	for _, op := range ops {
		c.arg(op.Owner)
		if special(op, common) {
			c.arg(millis(op))
			c.arg(strconv.Itoa(max(1, op.Fences)))
			c.arg(meta(op))
		}
	}
	if companions {
		c.arg(engineOf(ops))
		c.arg(publish)
		c.arg(waiterMillis)
	}
	return c
}

func (lockDialect) read(ops []*Op, answer string) {
	answers := fields{text: answer}
	for _, op := range ops {
		answers.read(op)
	}
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
	l := actionLetter(op)
	if op.Action == Try && op.Waiting {
		l = 'v'
	}
	if special(op, common) {
		l -= 'a' - 'A'
	}
	return l
}

// actionLetter is what the scripts call the action of op.
func actionLetter(op *Op) byte {
	switch op.Action {
	case Try:
		if op.Waiter != "" {
			return 'w'
		}
		return 't'
	case Extend:
		return 'e'
	case Refill:
		return 'f'
	case Release:
		if op.Keep > 0 {
			return 'k'
		}
		return 'r'
	default:
		return 'l'
	}
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

// Watch implements Watcher.
func (b *redisBackend) Watch(ctx context.Context, key string, wake func(by, next string)) (stop func(), err error) {
	name := lockName(key)
	if b.cluster != nil {
		if _, err := b.cluster.find(ctx, slotOf(name)); err != nil {
			return nil, err
		}
	}
	return b.hub.watch(ctx, companionName("wait", name), func(word string) {
		by, next, _ := strings.Cut(word, ">") // as lua/lock.lua says it
		wake(by, next)
	})
}

// Probe implements Prober: it writes the probe's own key.
func (b *redisBackend) Probe(ctx context.Context, route string) error {
	s, key := b.one, reserved+"probe"
	if b.cluster != nil {
		slot, err := b.cluster.slotAt(ctx, route)
		if err != nil || slot < 0 {
			return err // no slot is there any more, so nothing waits for it
		}
		if s, err = b.cluster.find(ctx, slot); err != nil {
			return err
		}
		key = reserved + "probe:{" + slotTag(slot) + "}"
	}
	err := s.client.Process(ctx, once{redis.NewCmd(ctx, "set", key, "1", "px", 1000)})
	if err != nil {
		if b.cluster != nil {
			b.cluster.next(s, slotOf(key), err)
		}
		err, _ = classify(err)
	}
	return err
}

// Close implements Closer.
func (b *redisBackend) Close() error {
	if b.wrong != nil {
		return nil
	}
	b.hub.close()
	if b.cluster != nil {
		b.cluster.close()
	}
	return nil
}
