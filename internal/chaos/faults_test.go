package chaos

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
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

// tearAOF cuts up to a quarter of a kilobyte off the end of the AOF, where a grant stands.
func tearAOF(a *arena) {
	a.stage()
	a.server().Kill()
	files, err := filepath.Glob(filepath.Join(a.server().Dir(), "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) != 1 {
		a.Fatalf("AOF: %v, %v", files, err)
	}
	info, err := os.Stat(files[0])
	if err != nil {
		a.Fatal(err)
	}
	if err := os.Truncate(files[0], max(0, info.Size()-1-a.rng.Int64N(256))); err != nil {
		a.Fatal(err)
	}
	a.server().Restart()
	a.connect()
}

func clientPause(a *arena) {
	mode := []string{"ALL", "WRITE"}[a.rng.IntN(2)]
	a.must("CLIENT", "PAUSE", 10_000, mode)
	a.last()
	a.must("CLIENT", "UNPAUSE")
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

// flushAll strikes several times: the lock must be held and asked for at that moment for a second holder to come in.
func flushAll(a *arena) {
	for range 8 {
		a.must("FLUSHALL")
		time.Sleep(ttl / 4)
	}
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
	for range 3 {
		fill(a, "allkeys-random")
		fill(a, "volatile-ttl")
	}
	unfill(a)
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
	for range 4 {
		a.server().SetClock("+31s")
		time.Sleep(ttl / 2)
		a.server().SetClock("+0")
		time.Sleep(ttl / 2)
	}
}

// setClock leaves the clock as it is set: going back would be another fault.
func setClock(spec string) func(*arena) {
	return func(a *arena) {
		a.server().SetClock(spec)
		a.last()
	}
}

// Sentinel and Cluster.

// failover has the replica miss what the master grants at the end.
func failover(a *arena) {
	replica, master := a.sentinel.Replicas()[0], a.sentinel.Master()
	replica.Pause()
	a.stage()
	master.Kill()
	replica.Resume()
	a.sentinel.WaitFailover(a.TB)
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
	for _, r := range replicas {
		r.Pause()
	}
	a.stage()
	old.Kill()
	for _, r := range replicas {
		r.Resume()
	}
	a.cluster.WaitFailover(stagedKey, old)
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
		if err := a.servers[i].Client().FlushAll(a.Context()).Err(); err != nil {
			a.Fatal(err)
		}
	}
	a.last()
}

func clocksAhead(a *arena) {
	for _, i := range a.some(2) {
		a.servers[i].SetClock("+31s")
	}
	a.last()
}

func clocksBack(a *arena) {
	for _, i := range a.some(2) {
		a.servers[i].SetClock("-1h")
	}
	a.last()
}
