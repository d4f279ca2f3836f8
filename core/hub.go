package core

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// hub is the one pub/sub connection of a node: it carries the releases of all keys for which somebody waits here. It
// opens with the first watch and closes when nobody has watched for a while. Polls stand behind it, so a message that is
// lost costs one poll.
type hub struct {
	rdb    redis.UniversalClient
	mu     sync.Mutex
	topics map[string]*topic
	ps     *redis.PubSub // nil while closed
	kick   chan struct{} // there is something to subscribe or to unsubscribe
	stop   context.CancelFunc
	ended  sync.WaitGroup
}

// topic is one channel.
type topic struct {
	wakes   map[*func(string)]struct{}
	stands  bool
	ready   chan struct{} // closed when stands
	sent    bool          // SUBSCRIBE went out
	idleFor time.Time     // since when nobody watches; zero while somebody does
}

const (
	// hubLinger is for how long a subscription outlives its last watcher: waits on a hot key follow each other closely.
	hubLinger = 2 * time.Second
	hubPing   = 3 * time.Second
	hubPause  = 100 * time.Millisecond
)

func newHub(rdb redis.UniversalClient) *hub {
	return &hub{rdb: rdb, topics: make(map[string]*topic)}
}

// watch has wake called for each message on channel. It returns when the subscription stands.
func (h *hub) watch(ctx context.Context, channel string, wake func(string)) (stop func(), err error) {
	h.mu.Lock()
	h.open()
	t := h.topics[channel]
	if t == nil {
		t = &topic{wakes: make(map[*func(string)]struct{}), ready: make(chan struct{})}
		h.topics[channel] = t
	}
	t.wakes[&wake] = struct{}{}
	t.idleFor = time.Time{}
	ready, stands := t.ready, t.stands
	h.nudge()
	h.mu.Unlock()
	stop = func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(t.wakes, &wake)
		if len(t.wakes) == 0 {
			t.idleFor = time.Now()
		}
	}
	if stands {
		return stop, nil
	}
	select {
	case <-ready:
		return stop, nil
	case <-ctx.Done():
		stop()
		return nil, context.Cause(ctx)
	}
}

// open starts the connection's two goroutines if they do not run. h is locked.
func (h *hub) open() {
	if h.ps != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ps := h.rdb.Subscribe(ctx)
	h.ps, h.stop, h.kick = ps, cancel, make(chan struct{}, 1)
	kick := h.kick
	h.ended.Add(2)
	go func() {
		defer h.ended.Done()
		h.write(ctx, cancel, ps, kick)
	}()
	go func() {
		defer h.ended.Done()
		h.read(ctx, ps)
	}()
}

func (h *hub) nudge() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// write subscribes to what is wanted and lets go what is not, until nothing is left.
func (h *hub) write(ctx context.Context, stop func(), ps *redis.PubSub, kick chan struct{}) {
	tidy := time.NewTicker(hubLinger / 2)
	defer tidy.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-kick:
		case <-tidy.C:
		}
		wanted, unwanted, empty := h.plan(time.Now())
		if empty {
			stop()
			ps.Close()
			return
		}
		tctx, cancel := context.WithTimeout(ctx, tripLimit)
		if len(wanted) > 0 && ps.Subscribe(tctx, wanted...) != nil {
			h.again(wanted)
			time.AfterFunc(hubPause, func() {
				select {
				case kick <- struct{}{}:
				default:
				}
			})
		}
		if len(unwanted) > 0 {
			ps.Unsubscribe(tctx, unwanted...)
		}
		cancel()
	}
}

// plan returns which channels to subscribe to and which to leave, and whether none is left at all.
func (h *hub) plan(now time.Time) (wanted, unwanted []string, empty bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, t := range h.topics {
		switch {
		case len(t.wakes) > 0 && !t.sent:
			t.sent = true
			wanted = append(wanted, name)
		case len(t.wakes) == 0 && now.Sub(t.idleFor) >= hubLinger:
			delete(h.topics, name)
			unwanted = append(unwanted, name)
		}
	}
	if len(h.topics) == 0 {
		h.ps = nil
		return nil, nil, true
	}
	return wanted, unwanted, false
}

// again has channels subscribed to once more.
func (h *hub) again(channels []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range channels {
		if t := h.topics[name]; t != nil && !t.stands {
			t.sent = false
		}
	}
}

// read passes messages on. go-redis dials again and subscribes anew after an error; each confirmation wakes the
// channel's watchers then, since what was said meanwhile is lost.
func (h *hub) read(ctx context.Context, ps *redis.PubSub) {
	for ctx.Err() == nil {
		msg, err := ps.ReceiveTimeout(ctx, hubPing)
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			if timeout, ok := err.(interface{ Timeout() bool }); ok && timeout.Timeout() {
				ps.Ping(ctx)
				continue
			}
			pause := time.NewTimer(hubPause)
			select {
			case <-pause.C:
			case <-ctx.Done():
			}
			pause.Stop()
			continue
		}
		switch m := msg.(type) {
		case *redis.Subscription:
			if m.Kind == "subscribe" || m.Kind == "ssubscribe" {
				h.confirmed(m.Channel)
			}
		case *redis.Message:
			h.tell(m.Channel, m.Payload)
		}
	}
}

func (h *hub) confirmed(channel string) {
	h.mu.Lock()
	t := h.topics[channel]
	first := t != nil && !t.stands
	if first {
		t.stands = true
		close(t.ready)
	}
	h.mu.Unlock()
	if t != nil && !first {
		h.tell(channel, "")
	}
}

func (h *hub) tell(channel, by string) {
	h.mu.Lock()
	var wakes []func(string)
	if t := h.topics[channel]; t != nil {
		for w := range t.wakes {
			wakes = append(wakes, *w)
		}
	}
	h.mu.Unlock()
	for _, w := range wakes {
		w(by)
	}
}

// close ends the connection; the next watch opens another.
func (h *hub) close() {
	h.mu.Lock()
	ps, stop := h.ps, h.stop
	h.ps = nil
	h.topics = make(map[string]*topic)
	h.mu.Unlock()
	if ps == nil {
		h.ended.Wait()
		return
	}
	stop()
	ps.Close()
	h.ended.Wait()
}
