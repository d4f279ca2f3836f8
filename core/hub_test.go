package core

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/internal/redistest"
)

// dialer makes connections that can be made deaf: they stay open, and nothing arrives any more.
type dialer struct {
	mu    sync.Mutex
	conns []*deafConn
}

type deafConn struct {
	net.Conn
	deaf atomic.Bool
}

func (c *deafConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.deaf.Load() {
			return n, err
		}
	}
}

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &deafConn{Conn: conn}
	d.conns = append(d.conns, c)
	return c, nil
}

func (d *dialer) deafen() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		c.deaf.Store(true)
	}
	return len(d.conns)
}

// await receives from what within a while.
func await[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(10 * time.Second):
		t.Fatalf("never: %s", what)
	}
	return v
}

func hubOver(t *testing.T, rdb *redis.Client) *hub {
	s := serverOf("", rdb)
	h := newHub(func(string) *server { return s })
	t.Cleanup(h.close)
	return h
}

// A connection that has died without a word is noticed, replaced, and the watchers are woken: what was said meanwhile
// is lost.
func TestHubNoticesASilentConnection(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := redistest.Start(t)
	var d dialer
	h := hubOver(t, s.NewClient(func(o *redis.Options) { o.Dialer = d.dial }))
	h.ping = 100 * time.Millisecond
	heard := make(chan string, 10)
	stop, err := h.watch(ctx, "c", func(by string) { heard <- by })
	if err != nil {
		t.Fatal(err)
	}
	admin := s.Client()
	admin.Publish(ctx, "c", "one")
	if by := await(t, heard, "the first message"); by != "one" {
		t.Fatalf("heard %q", by)
	}
	if d.deafen() != 1 {
		t.Fatal("not one connection")
	}
	admin.Publish(ctx, "c", "lost")
	if by := await(t, heard, "a wake-up on the new subscription"); by != "" {
		t.Fatalf("heard %q", by)
	}
	admin.Publish(ctx, "c", "two")
	if by := await(t, heard, "a message on the new connection"); by != "two" {
		t.Fatalf("heard %q", by)
	}
	stop()
}

// A silent channel on a healthy connection stays subscribed on it.
func TestHubPings(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	h := hubOver(t, s.Client())
	h.ping = 20 * time.Millisecond
	stop, err := h.watch(context.Background(), "c", func(string) { t.Error("woken for nothing") })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	admin := s.Client()
	pinged := func() bool {
		return strings.Contains(admin.Info(context.Background(), "commandstats").Val(), "cmdstat_ping:calls=1")
	}
	for end := time.Now().Add(10 * time.Second); !pinged(); { // until the tenth, or the nineteenth
		if time.Now().After(end) {
			t.Fatal("no pings")
		}
		time.Sleep(time.Millisecond)
	}
	if n := len(admin.PubSubChannels(context.Background(), "*").Val()); n != 1 {
		t.Errorf("%d channels", n)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.sessions {
		if s.breaks != 0 {
			t.Errorf("the session broke %d times", s.breaks)
		}
	}
}

// With nobody left the connection is closed; with somebody again it is opened.
func TestHubClosesWhenIdle(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := redistest.Start(t)
	h := hubOver(t, s.Client())
	admin := s.Client()
	subscribers := func() int { return strings.Count(admin.ClientList(ctx).Val(), " sub=1 ") }
	for range 2 {
		stop, err := h.watch(ctx, "c", func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		if subscribers() == 0 {
			t.Fatal("no connection")
		}
		stop()
		for end := time.Now().Add(10 * time.Second); subscribers() != 0; {
			if time.Now().After(end) {
				t.Fatal("the connection stays")
			}
			time.Sleep(10 * time.Millisecond)
		}
		h.mu.Lock()
		if len(h.topics)+len(h.sessions) != 0 {
			t.Errorf("%d topics and %d sessions are left", len(h.topics), len(h.sessions))
		}
		h.mu.Unlock()
	}
}

// Watchers come and go, of channels that are left and joined again at the same moment.
func TestHubCrowd(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := redistest.Start(t)
	h := hubOver(t, s.Client())
	admin := s.NewClient(func(o *redis.Options) { o.PoolSize = 20 })
	var wg sync.WaitGroup
	for w := range 20 {
		wg.Go(func() {
			for r := range 30 {
				heard := make(chan string, 1)
				channel := fmt.Sprint("c", (w+r)%7)
				stop, err := h.watch(ctx, channel, func(by string) {
					select {
					case heard <- by:
					default:
					}
				})
				if err != nil {
					t.Error(err)
					return
				}
				if r%10 == 3 && w == 0 {
					admin.ClientKillByFilter(ctx, "TYPE", "pubsub")
				}
				admin.Publish(ctx, channel, "x")
				select {
				case <-heard:
				case <-time.After(10 * time.Second):
					t.Errorf("%s: nothing heard", channel)
				}
				stop()
			}
		})
	}
	wg.Wait()
}

// Who may not subscribe is told, and the server is not asked again for a while.
func TestHubIsDenied(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := redistest.Start(t)
	admin := s.Client()
	if err := admin.Do(ctx, "ACL", "SETUSER", "user", "on", ">pass", "~*", "+@all", "resetchannels").Err(); err != nil {
		t.Fatal(err)
	}
	h := hubOver(t, s.NewClient(func(o *redis.Options) { o.Username, o.Password = "user", "pass" }))
	for range 20 {
		if _, err := h.watch(ctx, "c", func(string) {}); !errors.Is(err, ErrDenied) {
			t.Fatalf("%v, want ErrDenied", err)
		}
	}
	if log := admin.Info(ctx, "commandstats").Val(); !strings.Contains(log, "cmdstat_subscribe:calls=0,") && !strings.Contains(log, "cmdstat_subscribe:calls=1,") {
		t.Errorf("subscribed more than once: %s", log)
	}
}

// A hub on a Cluster: one connection for each server, channels of many slots on it, also after it was killed.
func TestHubOnACluster(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	cluster := redistest.StartCluster(t, 3, 0)
	b := Redis(cluster.Client()).(*redisBackend)
	defer b.Close()
	const keys = 30
	heard := make(chan int, 10*keys)
	for i := range keys {
		stop, err := b.Watch(ctx, fmt.Sprint("k", i), func(string, string) { heard <- i })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	all := func(what string) {
		t.Helper()
		seen := map[int]bool{}
		for len(seen) < keys {
			seen[await(t, heard, what)] = true
		}
	}
	rdb := cluster.Client()
	for round := range 2 {
		for i := range keys {
			if err := rdb.SPublish(ctx, companionName("wait", fmt.Sprint("k", i)), "x").Err(); err != nil {
				t.Fatal(err)
			}
		}
		all("messages on all channels")
		if round == 0 {
			for _, n := range cluster.Nodes() {
				killed, err := n.Client().ClientKillByFilter(ctx, "TYPE", "pubsub").Result()
				if err != nil || killed != 1 {
					t.Errorf("%d connections killed (%v), want one for each server", killed, err)
				}
			}
			all("wake-ups on the new subscriptions")
		}
	}
}
