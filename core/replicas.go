package core

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Some Trys count only when replicas have them too.

// replicated tells whether any of ops is such a Try.
func replicated(ops []*Op) bool {
	for _, op := range ops {
		if op.Replicas > 0 && op.Action == Try {
			return true
		}
	}
	return false
}

// replicate carries out the one Try of p and waits for its replicas: on one connection, since WAIT waits for what was
// written on its own.
func (b *redisBackend) replicate(ctx context.Context, p *part) {
	op := p.ops[0]
	for range maxHops {
		whole := p.server.whole
		if whole == nil {
			op.Err, op.Unsent = b.cannotWait(), true
			return
		}
		conn := whole.Conn()
		client := guard{conn}
		err := b.run(ctx, p, client)
		if err == nil && op.Verdict == Granted {
			b.await(ctx, p, client)
		}
		conn.Close()
		if err == nil {
			return
		}
		var next *server
		if b.cluster != nil {
			next = b.cluster.next(p.server, p.slot, err)
		}
		if next == nil || next.whole == nil {
			fail(op, err)
			return
		}
		p.server = next
	}
	op.Err, op.Unsent = fmt.Errorf("%w: sent from one server to another %d times", ErrUnavailable, maxHops), true
}

func (b *redisBackend) cannotWait() error {
	return fmt.Errorf("%w: WithReplicas: the client given to %q cannot wait for replicas", ErrInvalidOption, b.name)
}

// await waits for the replicas of a grant, and undoes it when they do not come.
func (b *redisBackend) await(ctx context.Context, p *part, client doer) {
	op := p.ops[0]
	wait := redis.NewIntCmd(ctx, "wait", op.Replicas, max(1, op.ReplicaTimeout.Milliseconds()))
	err := client.Process(ctx, onceNumber{wait})
	if err == nil && wait.Val() >= int64(op.Replicas) {
		return
	}
	if err == nil {
		err = fmt.Errorf("%w: %d of %d replicas have the lock after %v", ErrUnavailable, wait.Val(), op.Replicas,
			op.ReplicaTimeout.Round(time.Millisecond))
	}
	undo := &Op{Action: Release, Hold: op.Hold, Owner: op.Owner, Waiter: op.Waiter}
	undone := b.run(ctx, &part{server: p.server, slot: p.slot, ops: []*Op{undo}}, client) == nil && undo.Err == nil
	fail(op, err)
	op.Fence, op.Fenced, op.Unsent = 0, 0, undone
}

// onceNumber is once for a number.
type onceNumber struct{ *redis.IntCmd }

func (onceNumber) NoRetry() bool { return true }
