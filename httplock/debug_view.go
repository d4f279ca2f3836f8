package httplock

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/latchkit/latchkit/core"
)

// debugView is what a DebugHandler shows: as JSON as it is, and laid out by debug/page.html.
type debugView struct {
	At       time.Time      `json:"at"`
	Process  string         `json:"process"`
	Query    string         `json:"query,omitempty"`
	Leases   []debugLease   `json:"leases"`
	Waiting  []debugWaiting `json:"waiting"`
	Losses   []debugLoss    `json:"losses"`
	Breakers []debugBreaker `json:"breakers"`
}

type debugLease struct {
	Key       string    `json:"key"`
	Kind      string    `json:"kind"`
	Label     string    `json:"label"`
	Since     time.Time `json:"since"`
	Age       seconds   `json:"age"`
	Remaining seconds   `json:"remaining"`
	Fence     int64     `json:"fence,omitempty"`
	Count     int       `json:"count"`
	Renewed   bool      `json:"renewed"`
	Degraded  bool      `json:"degraded"`
}

type debugWaiting struct {
	Key   string    `json:"key"`
	Count int       `json:"count"`
	Since time.Time `json:"since"`
	Age   seconds   `json:"age"`
}

type debugLoss struct {
	Key    string    `json:"key"`
	Kind   string    `json:"kind"`
	Label  string    `json:"label"`
	Fence  int64     `json:"fence,omitempty"`
	At     time.Time `json:"at"`
	Held   seconds   `json:"held"`
	Reason string    `json:"reason"`
}

type debugBreaker struct {
	Node  string     `json:"node"`
	State string     `json:"state"`
	Since *time.Time `json:"since,omitempty"`
	Error string     `json:"error,omitempty"`
}

// seconds is a duration that JSON has in seconds.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "%.3f", time.Duration(s).Seconds()), nil
}

// look takes stock. With a query only what has it in its key, as it is shown, or in its label.
func (h *debugHandler) look(query string) *debugView {
	now := time.Now()
	v := &debugView{At: now, Process: process(), Query: query,
		Leases: []debugLease{}, Waiting: []debugWaiting{}, Losses: []debugLoss{}, Breakers: []debugBreaker{}}
	asked := func(texts ...string) bool { return strings.Contains(strings.Join(texts, "\n"), query) }
	for _, l := range h.locks.Leases() {
		if key := h.show(l.Key); asked(key, l.Label) {
			v.Leases = append(v.Leases, debugLease{Key: key, Kind: l.Kind.String(), Label: l.Label, Since: l.Since,
				Age: seconds(now.Sub(l.Since)), Remaining: seconds(l.Remaining), Fence: l.Fence, Count: l.Count,
				Renewed: l.Renewed, Degraded: l.Degraded})
		}
	}
	for _, w := range h.locks.Waiting() {
		if key := h.show(w.Key); asked(key) {
			v.Waiting = append(v.Waiting, debugWaiting{Key: key, Count: w.Count, Since: w.Since, Age: seconds(now.Sub(w.Since))})
		}
	}
	for _, l := range h.locks.Losses() {
		if key := h.show(l.Key); asked(key, l.Label) {
			v.Losses = append(v.Losses, debugLoss{Key: key, Kind: l.Kind.String(), Label: l.Label, Fence: l.Fence, At: l.At,
				Held: seconds(l.Age()), Reason: l.Reason})
		}
	}
	for _, b := range h.locks.Breakers() {
		v.Breakers = append(v.Breakers, describeBreaker(b))
	}
	return v
}

func describeBreaker(b core.Breaker) debugBreaker {
	d := debugBreaker{Node: b.Node, State: b.State}
	if !b.Since.IsZero() {
		d.Since = &b.Since
	}
	if b.Err != nil {
		d.Error = b.Err.Error()
	}
	return d
}

// process is host/pid.
func process() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// Waiters is how many wait, for all keys.
func (v *debugView) Waiters() (n int) {
	for _, w := range v.Waiting {
		n += w.Count
	}
	return n
}

// Breaker is the worst state of all; empty where there are no breakers.
func (v *debugView) Breaker() string {
	worst := ""
	for _, b := range v.Breakers {
		switch {
		case b.State == "open", worst == "", worst == "closed":
			worst = b.State
		}
	}
	return worst
}
