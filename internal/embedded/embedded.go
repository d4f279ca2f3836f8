// Package embedded runs a Redis inside the process, for programs that are to work on a machine without one. It is
// miniredis on loopback, with a clock that moves.
package embedded

import (
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// Start starts an empty server. stop ends it and all its connections.
func Start() (addr string, stop func(), err error) {
	m, err := miniredis.Run()
	if err != nil {
		return "", nil, err
	}
	c := &clock{server: m}
	c.advance()
	m.ClockTTL(true)
	m.Server().SetPreHook(c.before)
	return m.Addr(), m.Close, nil
}

// clock moves the time of a miniredis, which stands still by itself: at each command of a client, to the present.
//
// Within a script and within MULTI and EXEC it stands, as it does in Redis: a key that a script has seen cannot expire
// before its end. That is why ClockTTL alone, which reads the system's clock at each access, does not do. A ticker that
// moves the clock now and then does not either: a TTL would count from the last tick, and end too early by as much as
// the tick came late.
//
// The system's monotonic clock is used, so that a step of the wall clock ends no lease.
type clock struct {
	server *miniredis.Miniredis

	mu      sync.Mutex
	clients sync.Map // *server.Peer of each connection
}

// before runs ahead of each command, also of those that a script calls.
func (c *clock) before(peer *server.Peer, _ string, _ ...string) (done bool) {
	if c.fromClient(peer) {
		c.advance()
	}
	return false
}

// fromClient tells a connection's commands from those of a running script, which hold miniredis' lock: setting the time
// there would deadlock. A connection comes without a context for its first command, a script's call never does.
func (c *clock) fromClient(peer *server.Peer) bool {
	if peer.Ctx != nil {
		_, known := c.clients.Load(peer)
		return known
	}
	if _, again := c.clients.LoadOrStore(peer, true); !again {
		peer.OnDisconnect(func() { c.clients.Delete(peer) })
	}
	return true
}

// advance is serialized, lest a command that was held up between reading and setting turn the clock back.
func (c *clock) advance() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server.SetTime(now())
}

var start = time.Now()

func now() time.Time { return start.Add(time.Since(start)) }
