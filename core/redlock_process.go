package core

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// How a node tells its process apart without INFO.
//
// A node's marker names a run of the server, and each call compares it with the run that answers. To ask INFO costs the
// server more than all else that a grant does. But Redis 7 and newer keep a script that they were sent for as long as
// the process lives, and neither save it nor pass it on to replicas: so a script can be the proof. There is a variant of
// lua/redlock.lua for each run, which says so in its text, and with it goes an invariant:
//
//	the variant of a run is known to no process but that of the run.
//
// It holds because the text is sent only over a connection that has just said, by INFO, that it leads to that process;
// a connection leads to one process all its life, and who opens another in its midst sends nothing. A call by hash that
// finds the variant has found the process. After a restart, a promotion or SCRIPT FLUSH it is not found; the plain
// script, which asks INFO, answers then, and the variant is brought along once more.

// nodeProcess is the process behind a node, as its own variant of the script knows it.
type nodeProcess struct {
	variant  *script // nil: it knows none
	bringing bool
	next     time.Time // not brought again before
}

// variantPause is for how long a variant that could not be brought is not tried again.
const variantPause = time.Second

// callVariant makes the call with the variant, if there is one and the node still knows it.
func (n *node) callVariant(ctx context.Context, c *scriptCall, variant *script) (string, error) {
	if variant != nil {
		c.script = variant
		answer, err := c.sendHash(ctx, n.server.client)
		if err == nil || !unknownScript(err) {
			return answer, err
		}
		n.mu.Lock()
		if n.process.variant == variant {
			n.process.variant = nil
		}
		n.mu.Unlock()
		c.script = redLockScript
	}
	return c.send(ctx, n.server.client)
}

// bringVariant sees to it, in the background, that the node comes to know the variant of its process.
func (n *node) bringVariant() {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, run := &n.process, n.marker.run
	if p.variant != nil || p.bringing || run == "" || n.server.whole == nil || n.debts.closing || time.Now().Before(p.next) {
		return
	}
	p.bringing = true
	n.lock.running.begin()
	go func() {
		defer n.lock.running.end()
		variant := n.sendVariant(run)
		n.mu.Lock()
		defer n.mu.Unlock()
		p.variant, p.bringing, p.next = variant, false, time.Now().Add(variantPause)
	}()
}

// sendVariant returns the variant of run once the node knows it, nil when the node is another process.
func (n *node) sendVariant(run string) *script {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeouts*n.lock.timeout)
	defer cancel()
	conn := n.server.whole.Conn()
	defer func() { _ = conn.Close() }() // back into the pool
	client, info := guard{conn}, redis.NewStringCmd(ctx, "info", "server")
	if err := client.Process(ctx, onceText{info}); err != nil || !strings.Contains(info.Val(), run) {
		return nil
	}
	variant := variantOf(run)
	c := newCall(variant, 2, 0)
	defer c.free()
	c.key(reserved + "fence")
	c.key(markerName)
	if _, err := c.sendText(ctx, client); err != nil {
		return nil
	}
	return variant
}

// variantOf returns the script for the process of run, "run_id:" and the id.
func variantOf(run string) *script {
	return newScript(strings.Replace(redLockSource, "local process = ''", "local process = '"+run+"'", 1))
}
