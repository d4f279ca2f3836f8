package core

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A node timeout is for one answer. To open a connection takes several (TCP, TLS, HELLO, what the client tells of itself),
// and a trip that runs out of time in their midst throws it away; so a node that is slow, though not too slow, could
// never be reached: each trip would begin another connection and finish none. Connections are therefore also opened
// aside, with time enough, and stay in the client's pool for the trips to come.

// connectTimeouts is how many node timeouts that may take.
const connectTimeouts = 4

// connector opens connections to a node, one at a time.
type connector struct {
	mu    sync.Mutex
	under chan struct{} // closed when the one under way is open or has failed; nil: none is
}

// connect has a connection opened in the background if err says that a trip took too long.
func (n *node) connect(err error) {
	var t net.Error
	if !errors.As(err, &t) || !t.Timeout() {
		return
	}
	c := &n.connector
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.under != nil {
		return
	}
	under := make(chan struct{})
	c.under = under
	n.lock.running.begin()
	go func() {
		defer n.lock.running.end()
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeouts*n.lock.timeout)
		defer cancel()
		_ = n.server.client.Process(ctx, once{redis.NewCmd(ctx, "ping")})
		c.mu.Lock()
		defer c.mu.Unlock()
		c.under = nil
		close(under)
	}()
}

// connected returns when no connection is being opened to any node, or after the time that one may take.
func (b *redLock) connected() {
	t := time.NewTimer(connectTimeouts * b.timeout)
	defer t.Stop()
	for _, n := range b.nodes {
		n.connector.mu.Lock()
		under := n.connector.under
		n.connector.mu.Unlock()
		if under == nil {
			continue
		}
		select {
		case <-under:
		case <-t.C:
			return
		}
	}
}
