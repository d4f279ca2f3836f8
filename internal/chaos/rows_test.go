package chaos

import (
	"time"
)

// row is a fault and what must come of it.
type row struct {
	name    string
	fault   string // in words
	servers setup
	must    outcome
	// strike brings the fault and takes it back.
	strike func(a *arena)
	// long: not in the short form.
	long bool
}

// rows is the table of faults.
var rows = []row{
	{name: "redis/calm", fault: "none", servers: oneServer, must: excluded, strike: (*arena).last},

	// The network.
	{name: "redis/late", fault: "replies come late, by up to a TTL", servers: proxied, must: excluded, strike: late},
	{name: "redis/cut", fault: "nothing passes in either direction", servers: proxied, must: excluded, strike: cut},
	{name: "redis/cut-replies", fault: "replies are lost", servers: proxied, must: excluded, strike: cutReplies},
	{name: "redis/refuse", fault: "connections are refused", servers: proxied, must: excluded, strike: refuse},

	// The clients.
	{name: "redis/client-stopped", fault: "a client is stopped (SIGSTOP) and goes on", servers: oneServer, must: excluded, strike: stopClient},
	{name: "redis/client-killed", fault: "a client is killed (SIGKILL)", servers: oneServer, must: excluded, strike: killClient},

	// The server.
	{name: "redis/stopped", fault: "the server is stopped (SIGSTOP) and goes on", servers: oneServer, must: excluded, strike: stopServer},
	{name: "redis/restart-durable", fault: "the server is killed and restarts with its memory (appendfsync always)", servers: durable, must: excluded, strike: restart},
	{name: "redis/restart-empty", fault: "the server is killed and restarts without its memory", servers: oneServer, must: fenced, strike: forget},
	{name: "redis/aof-torn", fault: "the server is killed and restarts with an AOF torn at its end", servers: durable, must: fenced, strike: tearAOF},
	{name: "redis/client-pause", fault: "CLIENT PAUSE", servers: oneServer, must: excluded, strike: clientPause},
	{name: "redis/client-kill", fault: "CLIENT KILL of all connections, again and again", servers: oneServer, must: excluded, strike: clientKill},
	{name: "redis/script-flush", fault: "SCRIPT FLUSH", servers: oneServer, must: excluded, strike: scriptFlush},
	{name: "redis/flushall", fault: "FLUSHALL", servers: oneServer, must: fenced, strike: flushAll},
	{name: "redis/evicted", fault: "maxmemory, with keys evicted", servers: oneServer, must: fenced, strike: evict},
	{name: "redis/out-of-memory", fault: "maxmemory, with writes refused (OOM)", servers: oneServer, must: excluded, strike: outOfMemory},
	{name: "redis/max-clients", fault: "maxclients, and all connections closed", servers: oneServer, must: excluded, strike: maxClients},
	{name: "redis/read-only", fault: "the server becomes a replica (READONLY)", servers: oneServer, must: excluded, strike: readOnly},
	{name: "redis/acl", fault: "the ACL loses a command", servers: oneServer, must: excluded, strike: loseCommand},
	{name: "redis/disk-full", fault: "the disk is full (MISCONF)", servers: smallDisk, must: excluded, strike: fillDisk},

	// The server's clock.
	{name: "redis/clock-ahead", fault: "its clock jumps ahead by 31 s, and back", servers: faketime, must: fenced, strike: clockAhead},
	{name: "redis/clock-back", fault: "its clock jumps back by an hour", servers: faketime, must: excluded, strike: setClock("-1h")},
	{name: "redis/clock-slow", fault: "its clock runs at half speed", servers: faketime, must: excluded, strike: setClock("x0.5")},

	{name: "redis/clock-fast", fault: "its clock runs fast by 0.9 %, and holders use their leases to the end", servers: fastClock, must: excluded, strike: expire},

	// Sentinel and Cluster.
	{name: "sentinel/failover", fault: "failover while the replica lags", servers: sentinels, must: fenced, strike: failover},
	{name: "cluster/migration", fault: "the slot of a key moves", servers: clusterOf(0), must: excluded, strike: migrate},
	{name: "cluster/node-lost", fault: "a node is killed and its replica, which lags, takes over", servers: clusterOf(1), must: fenced, strike: loseNode},

	// RedLock.
	{name: "redlock/calm", fault: "none", servers: redLock, must: excluded, strike: (*arena).last},
	{name: "redlock/two-stopped", fault: "2 of 5 nodes are stopped and go on", servers: redLock, must: excluded, strike: stopNodes(2)},
	{name: "redlock/three-stopped", fault: "3 of 5 nodes are stopped and go on", servers: redLock, must: excluded, strike: stopNodes(3)},
	{name: "redlock/two-cut", fault: "2 of 5 nodes are cut off", servers: redLock, must: excluded, strike: cutNodes(2)},
	{name: "redlock/two-forget", fault: "2 of 5 nodes restart without their memory", servers: redLock, must: excluded, strike: forgetNodes(2)},
	{name: "redlock/all-forget", fault: "all nodes restart without their memory, one after the other", servers: redLock, must: excluded, strike: forgetNodes(5)},
	{name: "redlock/flushed", fault: "FLUSHALL on 2 of 5 nodes", servers: redLock, must: excluded, strike: flushNodes},
	{name: "redlock/client-stopped", fault: "a client is stopped and goes on", servers: redLock, must: excluded, strike: stopClient},
	{name: "redlock/client-killed", fault: "a client is killed", servers: redLock, must: excluded, strike: killClient},
	{name: "redlock/clock-ahead", fault: "the clocks of 2 of 5 nodes jump ahead by 31 s", servers: redLockFaketime, must: fenced, strike: setClocks("+31s")},
	{name: "redlock/clock-back", fault: "the clocks of 2 of 5 nodes jump back by an hour", servers: redLockFaketime, must: excluded, strike: setClocks("-1h")},
	{name: "redlock/clock-slow", fault: "the clocks of 2 of 5 nodes run at half speed", servers: redLockFaketime, must: excluded, strike: setClocks("x0.5")},

	// The fallback.
	{name: "fallback/refuse", fault: "connections are refused", servers: withFallback, must: flagged, strike: refuse},
	{name: "fallback/cut", fault: "nothing passes in either direction", servers: withFallback, must: flagged, strike: cut},
	{name: "fallback/flapping", fault: "connections are refused, again and again", servers: withFallback, must: flagged, strike: flap},

	// One upon the other.
	{name: "redis/storm", fault: "several of those that are excluded, one after the other", servers: proxied, must: excluded, strike: storm(redisFaults), long: true},
	{name: "redlock/storm", fault: "the same", servers: redLock, must: excluded, strike: storm(redLockFaults), long: true},
}

var (
	redisFaults = []func(*arena){late, cut, cutReplies, refuse, stopClient, killClient, stopServer, restart, clientPause,
		clientKill, scriptFlush, outOfMemory, maxClients, readOnly, loseCommand}
	redLockFaults = []func(*arena){stopNodes(1), stopNodes(2), stopNodes(3), cutNodes(2), forgetNodes(1), forgetNodes(2),
		flushNodes, stopClient, killClient}
)

// storm is three to six of faults.
func storm(faults []func(*arena)) func(*arena) {
	return func(a *arena) {
		for range 3 + a.rng.IntN(4) {
			faults[a.rng.IntN(len(faults))](a)
			if a.rng.IntN(2) == 0 {
				time.Sleep(time.Duration(a.rng.Int64N(int64(ttl))))
			}
		}
	}
}
