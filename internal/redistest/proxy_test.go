package redistest_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/internal/redistest"
)

// impatient clients show at once what a proxy does to them.
func impatient(o *redis.Options) {
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.DialTimeout = 200 * time.Millisecond
	o.ReadTimeout = 200 * time.Millisecond
}

func TestProxyCut(t *testing.T) {
	s := redistest.Start(t)
	p := s.Proxy(t)
	rdb := p.NewClient(impatient)
	if err := rdb.Set(bg(t), "n", 0, 0).Err(); err != nil {
		t.Fatal(err)
	}

	p.Cut()
	if err := rdb.Incr(bg(t), "n").Err(); err == nil {
		t.Error("a reply came through the cut")
	}
	if err := s.Client().Get(bg(t), "n").Err(); err != nil {
		t.Errorf("the server itself: %v", err)
	}
	p.Restore()
	within(t, 5*time.Second, func() error { return rdb.Ping(bg(t)).Err() })
	if n := rdb.Get(bg(t), "n").Val(); n != "0" {
		t.Errorf("a request came through the cut: n is %s", n)
	}
}

func TestProxyCutReplies(t *testing.T) {
	s := redistest.Start(t)
	p := s.Proxy(t)
	rdb := p.NewClient(impatient)
	rdb.Set(bg(t), "n", 0, 0)
	p.CutReplies()
	if err := rdb.Incr(bg(t), "n").Err(); err == nil {
		t.Error("a reply came through")
	}
	if n := s.Client().Get(bg(t), "n").Val(); n != "1" {
		t.Errorf("the request did not come through: n is %s", n)
	}
	p.Restore()
	within(t, 5*time.Second, func() error { return rdb.Ping(bg(t)).Err() })
}

func TestProxyRefuse(t *testing.T) {
	p := redistest.Start(t).Proxy(t)
	rdb := p.NewClient(impatient)
	if err := rdb.Ping(bg(t)).Err(); err != nil {
		t.Fatal(err)
	}
	p.Refuse()
	if err := rdb.Ping(bg(t)).Err(); err == nil {
		t.Error("not refused")
	}
	p.Restore()
	within(t, 5*time.Second, func() error { return rdb.Ping(bg(t)).Err() })
}

func TestProxyLatency(t *testing.T) {
	p := redistest.Start(t).Proxy(t)
	rdb := p.NewClient(nil)
	rdb.Ping(bg(t))
	p.Latency(100 * time.Millisecond)
	began := time.Now()
	if err := rdb.Ping(bg(t)).Err(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("took %v", took)
	}
	p.Latency(0)
	within(t, 5*time.Second, func() error { return rdb.Ping(bg(t)).Err() })
}

func TestProxyOutlivesItsServer(t *testing.T) {
	s := redistest.Start(t)
	p := s.Proxy(t)
	rdb := p.NewClient(impatient)
	s.Restart()
	within(t, 5*time.Second, func() error { return rdb.Ping(bg(t)).Err() })
}
