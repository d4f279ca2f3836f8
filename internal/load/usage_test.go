package load

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/internal/redistest"
)

// usage is what a process and its server have in use.
type usage struct {
	heap       uint64 // bytes that live
	goroutines int
	keys       int64
	memory     int64 // of the server
	clients    int
}

func (u usage) String() string {
	return fmt.Sprintf("heap %.1f MB, %d goroutines; server: %d keys, %.1f MB, %d connections", float64(u.heap)/1e6, u.goroutines,
		u.keys, float64(u.memory)/1e6, u.clients)
}

// measure looks when nothing is in use any more.
func measure(t *testing.T, server *redistest.Server) (u usage) {
	t.Helper()
	for range 3 { // what was in a sync.Pool takes two
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.heap, u.goroutines = m.HeapAlloc, runtime.NumGoroutine()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	u.keys = rdb.DBSize(t.Context()).Val()
	u.memory = field(t, rdb, "used_memory")
	u.clients = int(field(t, rdb, "connected_clients")) - 1
	return u
}

func field(t *testing.T, rdb *redis.Client, name string) (value int64) {
	t.Helper()
	text, err := rdb.Info(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(text, "\n"+name+":")
	if _, err := fmt.Sscan(rest, &value); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return value
}

// calls is how many commands of all kinds the server has served.
func calls(t *testing.T, server *redistest.Server) int64 {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	return field(t, rdb, "total_commands_processed")
}

func perSecond(n int, began time.Time) string {
	return fmt.Sprintf("%d in %v, %.0f a second", n, time.Since(began).Round(time.Millisecond), float64(n)/time.Since(began).Seconds())
}
