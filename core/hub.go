package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// hub carries the releases of all keys for which somebody waits here: over one pub/sub connection for each server, a
// session, which is opened with the first watch and closed when nobody has watched for a while. Polls stand behind it,
// so a message that is lost costs one poll.
//
// A session that breaks is thrown away as a whole, and its topics are placed anew, with backoff for each server. When
// their new subscription stands, their watchers are woken, for what was said meanwhile is lost.
type hub struct {
	// home returns the server that tells of channel; nil when that is not known now. It does not block.
	home func(channel string) *server
	// strayed is told that a channel is not where home said, with the server's words if it had any.
	strayed func(from *server, err error)
	// sharded: SSUBSCRIBE, where the server knows it.
	sharded bool
	ping    time.Duration // hubPing

	mu       sync.Mutex
	topics   map[string]*topic
	sessions map[*server]*session
	timer    *time.Timer // for what is due next: topics to place, idle topics to leave
	timerAt  time.Time   // zero: not set
}

// topic is one channel. The hub's mutex guards it.
type topic struct {
	name    string
	wakes   map[*func(string)]struct{}
	session *session      // on which it is subscribed, or will be; nil: nowhere
	stands  bool          // confirmed on session
	ready   chan struct{} // closed at the first confirmation, or with err
	was     bool          // ready is closed
	err     error         // the server refuses: it will not stand
	notTill time.Time     // not placed again before
	idle    time.Time     // since when nobody watches
}

const (
	// hubLinger is for how long a subscription outlives its last watcher: waits on a hot key follow each other closely.
	hubLinger = 2 * time.Second
	// hubPing is after how much silence a session is asked for a sign of life, and how long it has for one.
	hubPing = 3 * time.Second
	// A server whose session broke is left alone from hubPause, doubled each time, to hubAway.
	hubPause = 100 * time.Millisecond
	hubAway  = 3 * time.Second
	// hubRefused is for how long a server that refuses subscriptions is not asked again.
	hubRefused = 30 * time.Second
	// hubTidy is how exactly idle topics are left.
	hubTidy = 100 * time.Millisecond
)

func newHub(home func(channel string) *server) *hub {
	return &hub{home: home, strayed: func(*server, error) {}, ping: hubPing, topics: make(map[string]*topic), sessions: make(map[*server]*session)}
}

// watch has wake called for each message on channel. It returns when the subscription stands.
func (h *hub) watch(ctx context.Context, channel string, wake func(string)) (stop func(), err error) {
	t, stop := h.join(channel, wake)
	select {
	case <-t.ready:
	case <-ctx.Done():
		stop()
		return nil, context.Cause(ctx)
	}
	if err := h.refused(t); err != nil {
		return nil, err
	}
	return stop, nil
}

// join is watch that does not wait: the subscription stands when the topic is ready and was not refused.
func (h *hub) join(channel string, wake func(string)) (t *topic, stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t = h.topics[channel]
	if t == nil {
		t = &topic{name: channel, wakes: make(map[*func(string)]struct{}), ready: make(chan struct{})}
		h.topics[channel] = t
	}
	t.wakes[&wake] = struct{}{}
	if t.session == nil {
		h.place(t, time.Now())
	}
	return t, func() { h.leave(t, &wake) }
}

// refused returns why a topic that is ready does not stand; nil when it does.
func (h *hub) refused(t *topic) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return t.err
}

func (h *hub) leave(t *topic, wake *func(string)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(t.wakes, wake)
	if len(t.wakes) == 0 && h.topics[t.name] == t {
		t.idle = time.Now()
		h.dueAt(t.idle.Add(hubLinger))
	}
}

// place puts t on the session of its server, or on the list of what is due later. The hub is locked, here and in all
// that follows unless it says otherwise.
func (h *hub) place(t *topic, now time.Time) {
	s := h.home(t.name)
	switch {
	case s == nil:
		t.notTill = later(t.notTill, now.Add(hubPause))
	case s.refusal != nil && now.Before(s.notTill):
		h.refuse(t, s.refusal)
		return
	default:
		t.notTill = later(t.notTill, s.notTill)
	}
	if now.Before(t.notTill) {
		h.dueAt(t.notTill)
		return
	}
	session := h.sessions[s]
	if session == nil {
		session = h.open(s)
	}
	t.session, t.stands = session, false
	session.topics[t] = struct{}{}
	session.joining = append(session.joining, t)
	session.nudge()
}

// refuse tells those who watch t that it will not stand.
func (h *hub) refuse(t *topic, err error) {
	delete(h.topics, t.name)
	if t.session != nil {
		delete(t.session.topics, t)
		t.session = nil
	}
	if !t.was {
		t.was, t.err = true, err
		close(t.ready)
	}
}

// displace takes t off its session, to be placed again after pause.
func (h *hub) displace(t *topic, pause time.Duration) {
	if t.session != nil {
		delete(t.session.topics, t)
	}
	t.session, t.stands = nil, false
	if len(t.wakes) == 0 {
		delete(h.topics, t.name)
		return
	}
	t.notTill = time.Now().Add(pause)
	h.dueAt(t.notTill)
}

// dueAt has due run at the given time at the latest.
func (h *hub) dueAt(at time.Time) {
	if !h.timerAt.IsZero() && !at.Before(h.timerAt) {
		return
	}
	h.timerAt = at
	wait := max(time.Until(at), time.Millisecond)
	if h.timer == nil {
		h.timer = time.AfterFunc(wait, h.due)
		return
	}
	h.timer.Reset(wait)
}

// due places what could not be placed before, leaves what nobody watches any more, and closes sessions without topics.
func (h *hub) due() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timerAt = time.Time{}
	now := time.Now()
	for _, t := range h.topics {
		switch {
		case len(t.wakes) > 0 && t.session == nil:
			h.place(t, now)
		case len(t.wakes) > 0:
		case now.Sub(t.idle) >= hubLinger:
			delete(h.topics, t.name)
			if t.session != nil {
				delete(t.session.topics, t)
				t.session.parting = append(t.session.parting, t.name)
				t.session.nudge()
			}
		default:
			h.dueAt(later(t.idle.Add(hubLinger), now.Add(hubTidy)))
		}
	}
	for s, session := range h.sessions {
		if len(session.topics) == 0 {
			delete(h.sessions, s)
			session.cancel()
		}
	}
}

// close ends all sessions and waits until they have ended; the next watch opens others. Topics that somebody watches
// still, another engine on the same backend, are placed on new ones.
func (h *hub) close() {
	h.mu.Lock()
	ending := make([]*session, 0, len(h.sessions))
	for _, session := range h.sessions {
		ending = append(ending, session)
		session.cancel()
	}
	clear(h.sessions)
	if h.timer != nil {
		h.timer.Stop()
		h.timerAt = time.Time{}
	}
	for _, t := range h.topics {
		if t.was {
			h.displace(t, 0)
		} else {
			h.refuse(t, ErrClosed) // it may be the closing engine that subscribes; others do so again
		}
	}
	h.mu.Unlock()
	for _, session := range ending {
		<-session.done
	}
}

// tell wakes those who watch channel. The hub is not locked.
func (h *hub) tell(channel, by string) {
	h.mu.Lock()
	var wakes []func(string)
	if t := h.topics[channel]; t != nil {
		wakes = make([]func(string), 0, len(t.wakes))
		for w := range t.wakes {
			wakes = append(wakes, *w)
		}
	}
	h.mu.Unlock()
	for _, w := range wakes {
		w(by)
	}
}

// session is one pub/sub connection. run writes to it and read reads from it; both end with it.
type session struct {
	hub    *hub
	server *server
	ctx    context.Context
	cancel context.CancelFunc
	ps     *redis.PubSub
	kick   chan struct{} // one slot: joining or parting is not empty
	done   chan struct{}

	// Guarded by the hub.
	topics  map[*topic]struct{}
	joining []*topic
	parting []string
	parted  map[string]int // UNSUBSCRIBEs that went out and are not confirmed
	sharded bool
	err     error // why it broke
}

func (h *hub) open(s *server) *session {
	ctx, cancel := context.WithCancel(context.Background())
	session := &session{hub: h, server: s, ctx: ctx, cancel: cancel, kick: make(chan struct{}, 1), done: make(chan struct{}),
		topics: make(map[*topic]struct{}), parted: make(map[string]int), sharded: h.sharded}
	h.sessions[s] = session
	go session.run()
	return session
}

func (s *session) nudge() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// fail ends the session because of err. The hub is not locked.
func (s *session) fail(err error) {
	s.hub.mu.Lock()
	if s.err == nil && s.ctx.Err() == nil {
		s.err = err
	}
	s.hub.mu.Unlock()
	s.cancel()
}

// run subscribes to what is wanted and lets go what is not, until the session ends.
func (s *session) run() {
	defer close(s.done)
	s.ps = s.server.subscribe(s.ctx)
	reading := make(chan struct{})
	started := false
	for s.ctx.Err() == nil {
		select {
		case <-s.kick:
		case <-s.ctx.Done():
			continue
		}
		if err := s.send(); err != nil {
			s.fail(err)
			break
		}
		if !started {
			started = true // the connection is there now
			go s.read(reading)
		}
	}
	s.ps.Close()
	if started {
		<-reading
	}
	s.ended()
}

// ended has the topics of the session placed anew.
func (s *session) ended() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sessions[s.server] == s {
		delete(h.sessions, s.server)
	}
	if s.err != nil {
		s.server.away(s.err)
	}
	for t := range s.topics {
		if s.server.refusal != nil {
			h.refuse(t, s.server.refusal)
		} else {
			h.displace(t, 0)
		}
	}
}

// away notes that the server's session broke: it is left alone for a while.
func (s *server) away(err error) {
	pause := min(hubPause<<min(s.breaks, 10), hubAway)
	s.breaks++
	s.refusal = nil
	if denied(err) {
		s.refusal = fmt.Errorf("%w: %w", ErrDenied, err)
		pause = hubRefused
	}
	s.notTill = time.Now().Add(pause/2 + rand.N(pause))
}

// maxSubscribe is how many channels go out in one command.
const maxSubscribe = 512

// send writes what is waiting to be subscribed to or left. The hub is not locked.
func (s *session) send() error {
	joins, parts, sharded := s.plan()
	ctx, cancel := context.WithTimeout(s.ctx, tripLimit)
	defer cancel()
	join, part := s.ps.Subscribe, s.ps.Unsubscribe
	if sharded {
		join, part = s.ps.SSubscribe, s.ps.SUnsubscribe
	}
	for _, channels := range parts {
		if err := part(ctx, channels...); err != nil {
			return err
		}
	}
	for _, channels := range joins {
		if err := join(ctx, channels...); err != nil {
			return err
		}
	}
	return nil
}

// plan takes what is waiting, by command: sharded channels go one slot at a time.
func (s *session) plan() (joins, parts [][]string, sharded bool) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	var join []string
	for _, t := range s.joining {
		if t.session == s && !t.stands {
			join = append(join, t.name)
		}
	}
	for _, name := range s.parting {
		s.parted[name]++
	}
	joins, parts = bundle(join, s.sharded), bundle(s.parting, s.sharded)
	s.joining, s.parting = nil, nil
	return joins, parts, s.sharded
}

// bundle divides channels by command.
func bundle(channels []string, bySlot bool) (bundles [][]string) {
	if bySlot {
		slots := make(map[int][]string)
		for _, c := range channels {
			slots[slotOf(c)] = append(slots[slotOf(c)], c)
		}
		for _, same := range slots {
			bundles = append(bundles, same)
		}
		return bundles
	}
	for len(channels) > 0 {
		n := min(len(channels), maxSubscribe)
		bundles = append(bundles, channels[:n])
		channels = channels[n:]
	}
	return bundles
}

// finished is a context that has ended. A session reads under it: go-redis would dial again by itself when the
// connection breaks, while everyone who writes has to wait, and would then subscribe to the channels of all slots in
// one command, which a Cluster refuses. Under this context that dial fails at once, and reading looks at deadlines only.
var finished = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (s *session) receive() (msg any, err error) {
	defer recovered(&err)
	return s.ps.ReceiveTimeout(finished, s.hub.ping)
}

// read passes messages on until the connection breaks or is silent for too long.
func (s *session) read(done chan struct{}) {
	defer close(done)
	asked := false // for a sign of life
	for s.ctx.Err() == nil {
		msg, err := s.receive()
		var reply redis.Error
		var timeout interface{ Timeout() bool }
		switch {
		case err == nil:
			asked = false
			s.hear(msg)
		case errors.As(err, &reply):
			asked = false
			s.refused(err)
		case errors.As(err, &timeout) && timeout.Timeout() && !asked:
			asked = true
			if err := s.ping(); err != nil {
				s.fail(err)
			}
		default:
			s.fail(err)
		}
	}
}

func (s *session) ping() error {
	ctx, cancel := context.WithTimeout(s.ctx, tripLimit)
	defer cancel()
	return s.ps.Ping(ctx)
}

func (s *session) hear(msg any) {
	switch m := msg.(type) {
	case *redis.Message:
		s.hub.tell(m.Channel, m.Payload)
	case *redis.Subscription:
		switch m.Kind {
		case "subscribe", "ssubscribe":
			s.confirmed(m.Channel)
		case "unsubscribe", "sunsubscribe":
			s.left(m.Channel)
		}
	}
}

func (s *session) confirmed(channel string) {
	h := s.hub
	h.mu.Lock()
	t := h.topics[channel]
	again := false
	if t != nil && t.session == s {
		s.server.breaks, s.server.refusal = 0, nil
		t.stands, again = true, t.was
		if !t.was {
			t.was = true
			close(t.ready)
		}
	}
	h.mu.Unlock()
	if again {
		h.tell(channel, "")
	}
}

// left looks at the end of a subscription: one that was not asked for means that the channel's slot has moved.
func (s *session) left(channel string) {
	h := s.hub
	h.mu.Lock()
	unasked := false
	if s.parted[channel] > 0 {
		if s.parted[channel]--; s.parted[channel] == 0 {
			delete(s.parted, channel)
		}
	} else if t := h.topics[channel]; t != nil && t.session == s {
		unasked = true
		h.displace(t, hubPause)
	}
	h.mu.Unlock()
	if unasked {
		h.strayed(s.server, nil)
	}
}

// refused looks at an error reply, which does not tell which command it answers.
func (s *session) refused(err error) {
	text := err.Error()
	switch {
	case strings.Contains(text, "unknown command") && s.plain():
	case strings.HasPrefix(text, "MOVED "):
		// Those of that slot, which do not stand yet, are elsewhere.
		s.hub.strayed(s.server, err)
		slot := movedSlot(err)
		s.hub.mu.Lock()
		for t := range s.topics {
			if !t.stands && slotOf(t.name) == slot {
				s.hub.displace(t, hubPause)
			}
		}
		s.hub.mu.Unlock()
	default:
		s.fail(err)
	}
}

// plain goes back to SUBSCRIBE, for a server older than 7. It reports whether it was sharded, or has gone back before.
func (s *session) plain() bool {
	if !s.hub.sharded {
		return false
	}
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if s.sharded {
		s.sharded = false
		for t := range s.topics {
			s.joining = append(s.joining, t)
		}
		s.nudge()
	}
	return true
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
