package chaos

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/latchkit/latchkit/internal/redistest"
)

// The network.

func late(a *arena) {
	a.proxy().Latency(time.Duration(a.rng.Int64N(int64(ttl))))
	a.last()
	a.proxy().Latency(0)
}

func cut(a *arena) {
	a.proxy().Cut()
	a.last()
	a.proxy().Restore()
}

func cutReplies(a *arena) {
	a.proxy().CutReplies()
	a.last()
	a.proxy().Restore()
}

func refuse(a *arena) {
	a.proxy().Refuse()
	a.last()
	a.proxy().Restore()
}

func flap(a *arena) {
	for range 3 {
		refuse(a)
		a.last()
	}
}

// The clients.

func stopClient(a *arena) {
	w := a.anyWorker()
	w.freeze()
	a.last()
	w.thaw()
}

func killClient(a *arena) {
	a.anyWorker().kill()
	a.addWorker()
}

// The server.

func stopServer(a *arena) {
	a.server().Pause()
	a.last()
	a.server().Resume()
}

func restart(a *arena) {
	a.server().Kill()
	time.Sleep(time.Duration(a.rng.Int64N(int64(ttl / 4))))
	a.server().Restart()
	a.connect()
}

func forget(a *arena) {
	v := a.victim()
	v.hold()
	restart(a)
	v.robbed()
}

// tearAOF cuts the AOF off in the midst of what it says of a victim, of which nothing was said since.
func tearAOF(a *arena) {
	v := a.victim()
	v.hold()
	a.server().Kill()
	files, err := filepath.Glob(filepath.Join(a.server().Dir(), "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) != 1 {
		a.Fatalf("AOF: %v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		a.Fatal(err)
	}
	if err := os.Truncate(files[0], int64(bytes.LastIndex(text, []byte(stagedKey)))); err != nil {
		a.Fatal(err)
	}
	a.server().Restart()
	a.connect()
	v.robbed()
}

// clientPause also holds up the connection that would take it back, so it is given its end.
func clientPause(a *arena) {
	d := ttl/2 + time.Duration(a.rng.Int64N(int64(3*ttl/2)))
	a.must("CLIENT", "PAUSE", d.Milliseconds(), []string{"ALL", "WRITE"}[a.rng.IntN(2)])
	time.Sleep(d)
}

func clientKill(a *arena) {
	for range 5 {
		a.must("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		a.must("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")
		time.Sleep(ttl / 8)
	}
}

func scriptFlush(a *arena) {
	for range 5 {
		a.must("SCRIPT", "FLUSH")
		time.Sleep(ttl / 8)
	}
}

func flushAll(a *arena) {
	v := a.victim()
	for range 4 {
		a.must("FLUSHALL")
		time.Sleep(ttl / 4)
	}
	v.hold()
	a.must("FLUSHALL")
	v.robbed()
}

// fill writes 2 MB, of which the server may keep one beside what it has.
func fill(a *arena, policy string) {
	a.must("CONFIG", "SET", "maxmemory-policy", policy)
	a.must("CONFIG", "SET", "maxmemory", memory(a)+1<<20)
	chunk := string(bytes.Repeat([]byte("x"), 10<<10))
	for i := range 200 {
		_ = a.admin.Set(a.Context(), fmt.Sprint("filler:", i), chunk, 0).Err() // OOM, where keys are not evicted
	}
}

func memory(a *arena) (used int) {
	info, err := a.admin.Info(a.Context(), "memory").Result()
	if err != nil {
		a.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "used_memory:")
	fmt.Sscan(rest, &used)
	return used
}

func unfill(a *arena) {
	a.must("CONFIG", "SET", "maxmemory", 0)
	for i := range 200 {
		a.must("DEL", fmt.Sprint("filler:", i))
	}
}

func evict(a *arena) {
	v := a.victim()
	v.hold()
	a.await("the victim's key is evicted", func() bool {
		fill(a, "allkeys-random")
		fill(a, "volatile-ttl")
		return v.joined() || v.lease.Remaining() == 0
	})
	unfill(a)
	v.robbed()
}

func outOfMemory(a *arena) {
	fill(a, "noeviction")
	a.last()
	unfill(a)
}

func maxClients(a *arena) {
	a.must("CONFIG", "SET", "maxclients", 1)
	clientKill(a)
	a.must("CONFIG", "SET", "maxclients", 10_000)
}

func readOnly(a *arena) {
	a.must("REPLICAOF", "127.0.0.1", 1)
	a.last()
	a.must("REPLICAOF", "NO", "ONE")
}

func loseCommand(a *arena) {
	lost := []string{"set", "pexpire", "del", "evalsha", "time", "get"}[a.rng.IntN(6)]
	a.Logf("without %s", lost)
	a.must("ACL", "SETUSER", "default", "-"+lost)
	a.last()
	a.must("ACL", "SETUSER", "default", "+@all")
}

// The server's clock.

func clockAhead(a *arena) {
	v := a.victim()
	v.hold()
	a.server().SetClock("+31s")
	v.robbed()
	for range 4 {
		a.server().SetClock("+0")
		time.Sleep(ttl / 2)
		a.server().SetClock("+31s")
		time.Sleep(ttl / 2)
	}
	a.server().SetClock("+0")
}

// setClock leaves the clock as it is set: going back would be another fault.
func setClock(spec string) func(*arena) {
	return func(a *arena) {
		a.server().SetClock(spec)
		a.last()
	}
}

// expire waits for a lease to run out.
func expire(a *arena) { time.Sleep(a.order.TTL * 5 / 4) }

// Sentinel and Cluster.

// lag writes so much that what is granted from now on cannot be on its way to a replica that is stopped: the buffers of
// the network are full. The tag puts it in the slot of stagedKey.
func lag(a *arena, master *redistest.Server) {
	a.Helper()
	rdb := a.client(master)
	for i := range 16 {
		if err := rdb.Set(a.Context(), fmt.Sprintf("filler:{%s}:%d", stagedKey, i), make([]byte, 1<<20), 0).Err(); err != nil {
			a.Fatal(err)
		}
	}
}

func failover(a *arena) {
	replica, master := a.sentinel.Replicas()[0], a.sentinel.Master()
	v := a.victim()
	replica.Pause()
	lag(a, master)
	v.hold()
	master.Kill()
	replica.Resume()
	a.sentinel.WaitFailover(a.TB)
	v.robbed()
	master.Restart()
}

func migrate(a *arena) {
	key := []string{"one", "readers", "two{x}", longKey}[a.rng.IntN(4)]
	m := a.cluster.StartMigration(key)
	time.Sleep(ttl / 4)
	m.MoveKeys()
	time.Sleep(ttl / 4)
	m.MoveKeys()
	m.Finish()
}

func loseNode(a *arena) {
	old, replicas := a.cluster.MasterFor(stagedKey), a.servers[3:]
	v := a.victim()
	for _, r := range replicas {
		r.Pause()
	}
	lag(a, old)
	v.hold()
	old.Kill()
	for _, r := range replicas {
		r.Resume()
	}
	a.cluster.WaitFailover(stagedKey, old)
	v.robbed()
	old.Restart()
}

// RedLock.

func stopNodes(n int) func(*arena) {
	return func(a *arena) {
		nodes := a.some(n)
		for _, i := range nodes {
			a.servers[i].Pause()
		}
		a.last()
		for _, i := range nodes {
			a.servers[i].Resume()
		}
	}
}

func cutNodes(n int) func(*arena) {
	return func(a *arena) {
		nodes := a.some(n)
		for _, i := range nodes {
			a.proxies[i].Cut()
		}
		a.last()
		for _, i := range nodes {
			a.proxies[i].Restore()
		}
	}
}

// forgetNodes restarts n nodes one after the other. Up to two may be without memory at a time; beyond that the next
// follows when work has gone on, which is when a majority has its memory again.
func forgetNodes(n int) func(*arena) {
	return func(a *arena) {
		for done, i := range a.some(n) {
			if done > 0 && done%2 == 0 {
				time.Sleep(a.order.MaxTTL)
				a.awaitWork()
			}
			a.servers[i].RestartEmpty()
		}
	}
}

func flushNodes(a *arena) {
	for _, i := range a.some(2) {
		if err := a.client(a.servers[i]).FlushAll(a.Context()).Err(); err != nil {
			a.Fatal(err)
		}
	}
	a.last()
}

// setClocks leaves the clocks of two nodes as they are set.
func setClocks(spec string) func(*arena) {
	return func(a *arena) {
		for _, i := range a.some(2) {
			a.servers[i].SetClock(spec)
		}
		a.last()
	}
}
