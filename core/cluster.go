package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// clusterClient is a *redis.ClusterClient, or what embeds one.
type clusterClient interface {
	redis.UniversalClient
	Options() *redis.ClusterOptions
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ReloadState(ctx context.Context)
}

// cluster knows which server serves a slot.
//
// Servers come from the given client, for it knows how to reach them, but trips go to them directly: so each is bounded
// by its context, and one that hangs holds up its own keys only. The slots are kept here as well, and asked for again
// from any server that answers when one does not, or says that a slot is elsewhere: the client would ask one after the
// other, each for as long as its own settings say.
type cluster struct {
	rdb   clusterClient
	any   *server // the client as a whole, which finds any server, for the rare trip that nobody else can make
	table [slots]atomic.Pointer[server]

	loaded  atomic.Bool   // the client knows the slots, so it answers from memory
	loading chan struct{} // one slot: the right to load

	mu      sync.Mutex
	servers map[*redis.Client]*server
	own     []*redis.Client // those of them that are ours to close
	asking  bool            // a refresh is under way
	asked   time.Time
	ending  context.CancelFunc // ends it; nil when none is under way
	asks    chan struct{}      // closed when it has ended
}

const (
	// askPause is how far apart refreshes of the slots are at least.
	askPause = 100 * time.Millisecond
	// askLimit bounds one, and askWidth is how many servers are asked at once: the first good answer wins.
	askLimit = time.Second
	askWidth = 3
	// maxHops is how often one command is sent elsewhere.
	maxHops = 4
)

func newCluster(rdb clusterClient) *cluster {
	return &cluster{rdb: rdb, any: serverOf("", rdb), loading: make(chan struct{}, 1), servers: make(map[*redis.Client]*server)}
}

// known returns the server of slot, or nil while nothing is known of the slots. It does not block.
func (c *cluster) known(slot int) *server {
	if s := c.table[slot].Load(); s != nil {
		return s
	}
	if !c.loaded.Load() {
		return nil
	}
	client, err := c.rdb.MasterForKey(context.Background(), slotTag(slot))
	if err != nil {
		return nil
	}
	s := c.server(client)
	c.table[slot].CompareAndSwap(nil, s)
	return s
}

// find is known for one who may wait.
func (c *cluster) find(ctx context.Context, slot int) (*server, error) {
	if s := c.known(slot); s != nil {
		return s, nil
	}
	if err := c.load(ctx); err != nil {
		return nil, fmt.Errorf("%w: the slots of the Cluster are not known: %w", ErrUnavailable, err)
	}
	if s := c.known(slot); s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("%w: slot %d of the Cluster is served by nobody", ErrUnavailable, slot)
}

// load has the client ask for the slots, once for all who wait for it. It is left behind when ctx ends first.
func (c *cluster) load(ctx context.Context) error {
	select {
	case c.loading <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.loaded.Load() {
		<-c.loading
		return nil
	}
	done := make(chan error, 1)
	go func() {
		limited, cancel := context.WithTimeout(context.Background(), tripLimit)
		defer cancel()
		_, err := c.rdb.MasterForKey(limited, slotTag(0))
		if err == nil {
			c.loaded.Store(true)
		}
		<-c.loading
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// server returns what stands for one of the client's servers.
func (c *cluster) server(client *redis.Client) *server {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.servers[client]
	if s == nil {
		s = serverOf(client.Options().Addr, client)
		c.servers[client] = s
	}
	return s
}

// at returns the server that is reached at addr, as told by the server from, or nil when addr makes no sense. A master
// that the client has not told of, for it is new or was a replica, is given a client of our own: the given one learns of
// it only when it asks for the slots, and may ask the very server that hangs.
func (c *cluster) at(addr string, from *server, slot int) *server {
	addr = reach(addr, from.name)
	if master, err := c.rdb.MasterForKey(context.Background(), slotTag(slot)); err == nil {
		c.server(master)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for client, s := range c.servers {
		if client.Options().Addr == addr || client.NodeAddress() == addr {
			return s
		}
	}
	if addr == "" || from.whole == nil {
		return nil
	}
	own := redis.NewClient(optionsFor(addr, *from.whole.Options()))
	s := serverOf(addr, own)
	c.servers[own], c.own = s, append(c.own, own)
	return s
}

// optionsFor returns the options of one server for another of the same Cluster.
func optionsFor(addr string, o redis.Options) *redis.Options {
	o.Addr, o.NodeAddress = addr, addr
	o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled, o.MaxRetries = tripLimit, tripLimit, true, -1
	o.MinIdleConns = 0
	if notes := o.MaintNotificationsConfig; notes != nil {
		again := *notes // each client has its own
		o.MaintNotificationsConfig = &again
	}
	return &o
}

// reach returns how to reach the server that from, itself reached at that address, tells to be at addr: an empty or a
// loopback host is its own, and so is port 0 (of a Cluster that speaks TLS only). "" where that cannot be.
func reach(addr, from string) string {
	host, port, err := net.SplitHostPort(addr)
	fromHost, fromPort, fromErr := net.SplitHostPort(from)
	if err != nil || fromErr != nil {
		return ""
	}
	if ip := net.ParseIP(host); host == "" || host == "?" || ip != nil && ip.IsLoopback() {
		host = fromHost
	}
	if port == "0" || port == "" {
		port = fromPort
	}
	return net.JoinHostPort(host, port)
}

// forget drops a server whose client was closed: by the Cluster's client, which has seen it leave, or by the user.
func (c *cluster) forget(s *server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for client, other := range c.servers {
		if other == s {
			delete(c.servers, client)
		}
	}
	for i := range c.table {
		c.table[i].CompareAndSwap(s, nil)
	}
}

// next looks at why a trip to s for slot has failed, and learns from it. It returns the server to which the same is to be
// sent, since it did nothing at s and another is named; else nil.
func (c *cluster) next(s *server, slot int, err error) *server {
	if addr, moved := redis.IsMovedError(err); moved {
		return c.moved(s, slot, addr)
	}
	if _, ask := redis.IsAskError(err); ask {
		return c.any // it asks on one connection, which takes more than a command
	}
	if errors.Is(err, redis.ErrClosed) {
		c.forget(s)
		if other := c.known(slot); other != nil && other != s && other.whole != s.whole {
			return other
		}
		return nil
	}
	var reply redis.Error
	if !errors.As(err, &reply) || redis.IsReadOnlyError(err) || redis.IsClusterDownError(err) ||
		redis.IsMasterDownError(err) || redis.IsLoadingError(err) {
		c.refresh()
	}
	return nil
}

// moved notes that slot is at addr, as from says.
func (c *cluster) moved(from *server, slot int, addr string) *server {
	s := c.at(addr, from, slot)
	if s != nil {
		c.table[slot].Store(s)
	}
	c.refresh() // where one slot has gone, others have as well
	if s == nil {
		return c.any
	}
	return s
}

// strayed is told by the hub that a channel is not where it was thought to be.
func (c *cluster) strayed(from *server, err error) {
	if addr, moved := redis.IsMovedError(err); moved {
		c.moved(from, movedSlot(err), addr)
		return
	}
	c.refresh()
}

// slotAt returns a slot of the server with that name; any when the name is empty, -1 when it has none.
func (c *cluster) slotAt(ctx context.Context, name string) (int, error) {
	if name == "" {
		_, err := c.find(ctx, 0)
		return 0, err
	}
	for slot := range c.table {
		if s := c.table[slot].Load(); s != nil && s.name == name {
			return slot, nil
		}
	}
	return -1, nil
}

// refresh asks for the slots in the background.
func (c *cluster) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking || len(c.servers) == 0 {
		return
	}
	wait := max(0, askPause-time.Since(c.asked))
	ctx, cancel := context.WithTimeout(context.Background(), wait+askLimit)
	c.asking, c.ending, c.asks = true, cancel, make(chan struct{})
	go func() {
		defer cancel()
		pause := time.NewTimer(wait)
		defer pause.Stop()
		select {
		case <-pause.C:
			c.ask(ctx)
		case <-ctx.Done():
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.asking, c.asked, c.ending = false, time.Now(), nil
		close(c.asks)
	}()
}

// ask asks some of the servers, and takes the first good answer.
func (c *cluster) ask(ctx context.Context) {
	asked := c.some(askWidth)
	type answer struct {
		from   *server
		ranges []redis.ClusterSlot
	}
	answers := make(chan answer, len(asked))
	for _, s := range asked {
		go func() {
			ranges, _ := s.whole.ClusterSlots(ctx).Result() //nolint:staticcheck // CLUSTER SHARDS is unknown before Redis 7
			answers <- answer{s, ranges}
		}()
	}
	best := 0
	for range asked {
		// More slots are a better answer: a server that was cut off tells of fewer.
		a := <-answers
		if n := covered(a.ranges); n > best {
			best = n
			c.apply(a.from, a.ranges)
		}
		if best == slots {
			return
		}
	}
	if best == 0 {
		// A Cluster by name only, or none of these servers answers: the client has other means.
		c.rdb.ReloadState(ctx)
		c.clear()
	}
}

func covered(ranges []redis.ClusterSlot) (n int) {
	for _, r := range ranges {
		if len(r.Nodes) > 0 {
			n += r.End - r.Start + 1
		}
	}
	return n
}

// some returns n of the servers at random.
func (c *cluster) some(n int) []*server {
	for range 8 * n { // those that nobody has needed yet are as good
		if master, err := c.rdb.MasterForKey(context.Background(), slotTag(rand.N(slots))); err == nil {
			c.server(master)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*server, 0, len(c.servers))
	for _, s := range c.servers {
		all = append(all, s)
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(n, len(all))]
}

// apply takes over what a server told.
func (c *cluster) apply(from *server, ranges []redis.ClusterSlot) {
	for _, r := range ranges {
		if len(r.Nodes) == 0 {
			continue
		}
		s := c.at(r.Nodes[0].Addr, from, r.Start)
		for slot := max(r.Start, 0); slot <= min(r.End, slots-1); slot++ {
			c.table[slot].Store(s)
		}
	}
}

func (c *cluster) clear() {
	for i := range c.table {
		c.table[i].Store(nil)
	}
}

// close ends a refresh that is under way, and closes the clients that are our own.
func (c *cluster) close() {
	c.mu.Lock()
	ending, asks := c.ending, c.asks
	c.mu.Unlock()
	if ending != nil {
		ending()
		<-asks
	}
	c.mu.Lock()
	own := c.own
	c.own = nil
	c.mu.Unlock()
	for _, client := range own {
		c.forget(c.server(client))
		client.Close()
	}
}

// movedSlot reads the slot of "MOVED slot address".
func movedSlot(err error) (slot int) {
	_, _ = fmt.Sscanf(err.Error(), "MOVED %d", &slot) // slot 0 where it cannot be read: a guess, and refreshed soon
	return min(max(slot, 0), slots-1)
}
