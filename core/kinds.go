package core

import (
	_ "embed"
	"strconv"
)

//go:embed lua/kinds.lua
var kindsSource string

var kindsScript = newScript(kindsSource)

// kindsKeys and kindsArgs are how many keys and arguments each operation takes there.
const kindsKeys, kindsArgs = 4, 11

// plain tells whether lua/lock.lua can carry out op: exclusive holds are its own, also those that were granted in order
// of arrival, once they are.
func plain(op *Op) bool {
	if op.Kind != Exclusive || op.Join != "" {
		return false
	}
	return !op.Fair || op.Action == Extend || op.Action == Release || op.Action == Refill
}

func allPlain(ops []*Op) bool {
	for _, op := range ops {
		if !plain(op) {
			return false
		}
	}
	return true
}

// composeKinds puts ops to lua/kinds.lua, which carries out all of them, so that operations on equal keys stay in order.
func composeKinds(ops []*Op, fence, publish string) *scriptCall {
	c := newCall(kindsScript, 1+kindsKeys*len(ops), 2+kindsArgs*len(ops))
	c.key(fence)
	for _, op := range ops {
		name := lockName(op.Key)
		c.key(name)
		c.key(companionName("wait", name))
		c.key(companionName("hold", name))
		c.key(companionName("line", name))
	}
	c.arg(publish)
	c.arg(waiterMillis)
	for _, op := range ops {
		c.arg(kindsActions[kindsAction(op)])
		c.arg(kindLetter(op.Kind))
		c.arg(flag(op.Fair))
		c.arg(op.Owner)
		c.arg(millis(op))
		c.arg(strconv.Itoa(max(1, op.Fences)))
		c.arg(strconv.Itoa(op.Limit))
		c.arg(op.Waiter)
		c.arg(op.Ticket)
		c.arg(op.Join)
		c.arg(meta(op))
	}
	return c
}

var kindsActions = map[Action]string{Try: "t", Extend: "e", Release: "r", Refill: "f", Leave: "l", Arrive: "a", keepAction: "k"}

// keepAction is a Release with Keep.
const keepAction Action = 255

func kindsAction(op *Op) Action {
	if op.Action == Release && op.Keep > 0 {
		return keepAction
	}
	return op.Action
}

func kindLetter(k Kind) string {
	switch k {
	case Shared:
		return "s"
	case Limited:
		return "l"
	default:
		return "x"
	}
}

func flag(set bool) string {
	if set {
		return "1"
	}
	return ""
}

//go:embed lua/all.lua
var allSource string

var allScript = newScript(allSource)

// composeAll puts Tries that are granted all or none to lua/all.lua. They differ in nothing but key and owner.
func composeAll(ops []*Op, fence string) *scriptCall {
	c := newCall(allScript, 1+len(ops), 2+len(ops))
	c.key(fence)
	for _, op := range ops {
		c.key(lockName(op.Key))
	}
	c.arg(millis(ops[0]))
	c.arg(meta(ops[0]))
	for _, op := range ops {
		c.arg(op.Owner)
	}
	return c
}

// Together implements Gatherer: one script touches one server, and one slot of a Cluster.
func (b *redisBackend) Together(keys []string) bool {
	if b.cluster == nil && !b.striped.Load() {
		return true
	}
	for _, key := range keys[1:] {
		if slotOf(lockName(key)) != slotOf(lockName(keys[0])) {
			return false
		}
	}
	return true
}
