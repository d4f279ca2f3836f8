package redistest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
)

// Proxy stands between clients and a server, in this process, and harms what passes.
type Proxy struct {
	t    testing.TB
	addr string

	mu     sync.Mutex
	proxy  *toxiproxy.Proxy
	toxics map[string]bool // by name
}

// Proxy starts a proxy in front of the server. It stays when the server restarts.
func (s *Server) Proxy(t testing.TB) *Proxy {
	t.Helper()
	port, err := takePort()
	if err != nil {
		t.Fatal(err)
	}
	api := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &Proxy{
		t:      t,
		addr:   loopback(port),
		proxy:  toxiproxy.NewProxy(api, s.String(), loopback(port), s.Addr()),
		toxics: map[string]bool{},
	}
	p.start()
	t.Cleanup(func() {
		p.Refuse()
		returnPort(port)
	})
	return p
}

// Addr is where clients reach the server through the proxy.
func (p *Proxy) Addr() string { return p.addr }

// NewClient is a new client of the server through the proxy, closed at the end of the test. mod may be nil.
func (p *Proxy) NewClient(mod func(*redis.Options)) *redis.Client {
	opts := &redis.Options{Addr: p.Addr()}
	if mod != nil {
		mod(opts)
	}
	rdb := redis.NewClient(opts)
	p.t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// The harms, by the names under which toxiproxy knows them here.
const (
	cutRequests = "cut-requests"
	cutReplies  = "cut-replies"
	lateReplies = "late-replies"
)

// Cut lets nothing through in either direction, like a network that has lost its way: connections stay open, new ones
// open too, and nobody is told.
func (p *Proxy) Cut() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(cutRequests, "timeout", "upstream", 0)
	p.add(cutReplies, "timeout", "downstream", 0)
}

// CutReplies lets requests through and loses the replies: the server does what it is asked, and the client never knows.
func (p *Proxy) CutReplies() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(cutReplies, "timeout", "downstream", 0)
}

// Refuse closes every connection and refuses new ones, like a server that is not there.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proxy.Stop()
}

// Latency makes replies late by d from now on. Zero takes that back.
func (p *Proxy) Latency(d time.Duration) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(lateReplies)
	if d > 0 {
		p.add(lateReplies, "latency", "downstream", d)
	}
}

// Restore takes back whatever was done. Connections that were cut are closed by it: what they lost would be missing in
// the middle of a stream.
func (p *Proxy) Restore() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.toxics[cutRequests] || p.toxics[cutReplies] {
		p.proxy.Stop()
	}
	p.remove(cutRequests)
	p.remove(cutReplies)
	p.remove(lateReplies)
	p.start()
}

// start tries again for a while: a child of this process that stands between its fork and its exec has the old listener
// still.
func (p *Proxy) start() {
	p.t.Helper()
	err := poll(startLimit, func() error {
		if err := p.proxy.Start(); !errors.Is(err, toxiproxy.ErrProxyAlreadyStarted) {
			return err
		}
		return nil
	})
	if err != nil {
		p.t.Fatalf("redistest: proxy: %v", err)
	}
}

// add puts a toxic in place. Both kinds that are used here have their one setting named like themselves.
func (p *Proxy) add(name, kind, direction string, d time.Duration) {
	p.t.Helper()
	if p.toxics[name] {
		return
	}
	spec := fmt.Sprintf(`{"name":%q,"type":%q,"stream":%q,"attributes":{%[2]q:%[4]d}}`,
		name, kind, direction, d.Milliseconds())
	if _, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(spec)); err != nil {
		p.t.Fatalf("redistest: proxy: %v", err)
	}
	p.toxics[name] = true
}

func (p *Proxy) remove(name string) {
	p.t.Helper()
	if !p.toxics[name] {
		return
	}
	if err := p.proxy.Toxics.RemoveToxic(context.Background(), name); err != nil {
		p.t.Fatalf("redistest: proxy: %v", err)
	}
	delete(p.toxics, name)
}
