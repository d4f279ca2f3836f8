package history

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkit/latchkit/core"
)

// what happened to a hold.
type what string

const (
	asked     what = "ask"     // Acquire is about to be called
	heard     what = "hear"    // the store has answered an operation that says it waits
	got       what = "got"     // it returned a lease
	refused   what = "refused" // it returned an error
	still     what = "still"   // the lease is live, until a later deadline perhaps
	lost      what = "lost"    // the lease's context ended with ErrLost
	releasing what = "leave"   // Release is about to be called
	released  what = "left"    // it returned
)

// event is one line of a history.
type event struct {
	At       int64     `json:"t"`
	Sent     int64     `json:"sent,omitempty"`
	Granted  bool      `json:"granted,omitempty"`
	Hold     int64     `json:"h"`
	What     what      `json:"e"`
	Key      string    `json:"k,omitempty"`
	Kind     core.Kind `json:"kind,omitempty"`
	Limit    int       `json:"limit,omitempty"`
	Fair     bool      `json:"fair,omitempty"`
	Until    int64     `json:"until,omitempty"`
	Fence    int64     `json:"fence,omitempty"`
	Degraded bool      `json:"degraded,omitempty"`
	Err      string    `json:"err,omitempty"`
}

// Recorder writes the history of one process to a file. Its methods may be called concurrently.
type Recorder struct {
	mu   sync.Mutex
	file io.WriteCloser
	err  error
	last atomic.Int64
}

// Create starts a history in a new file. process names it among others.
func Create(path, process string) (*Recorder, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	r := &Recorder{file: file}
	r.write(header{Process: process})
	return r, nil
}

// header is the first line.
type header struct {
	Process string `json:"process"`
}

// write puts a line into the file in one piece, so that one killed in between leaves whole lines and at most one torn.
func (r *Recorder) write(line any) {
	text, err := json.Marshal(line)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		_, err = r.file.Write(append(text, '\n'))
	}
	if r.err == nil {
		r.err = err
	}
}

// Close ends the history, and returns the first error that kept it from being complete.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.file.Close(); r.err == nil {
		r.err = err
	}
	return r.err
}

// Request is what is asked of Acquire.
type Request struct {
	Key   string
	Kind  core.Kind
	Limit int
	Fair  bool
}

// Entry records one hold, from the question on.
type Entry struct {
	recorder *Recorder
	id       int64
}

// Ask is called right before Acquire.
func (r *Recorder) Ask(q Request) *Entry {
	e := &Entry{recorder: r, id: r.last.Add(1)}
	e.write(event{At: Now(), What: asked, Key: q.Key, Kind: q.Kind, Limit: q.Limit, Fair: q.Fair})
	return e
}

func (e *Entry) write(line event) {
	line.Hold = e.id
	e.recorder.write(line)
}

// Heard is called when the store has answered an operation of a fair waiter, which went out at sent: the waiter stands in
// line and its engine lives; or it has been, or may have been, granted what it waits for, and has no place any more.
func (e *Entry) Heard(sent int64, granted bool) {
	e.write(event{At: Now(), Sent: sent, What: heard, Granted: granted})
}

// Refused is called when Acquire returned an error.
func (e *Entry) Refused(err error) { e.write(event{At: Now(), What: refused, Err: err.Error()}) }

// Got is called right after Acquire has returned a lease.
func (e *Entry) Got(lease *core.Lease) {
	line := seen(lease)
	line.What, line.Fence = got, lease.Fence()
	e.write(line)
}

// Still records that the lease is live, and until when, and reports whether it is.
func (e *Entry) Still(lease *core.Lease) bool {
	line := seen(lease)
	if lease.Remaining() <= 0 {
		return false
	}
	line.What = still
	e.write(line)
	return true
}

// seen is what a lease says of itself. Whatever happens in between, the deadline told is not later than the true one,
// and not one of a degraded lease that passes for another.
func seen(lease *core.Lease) event {
	now := Now()
	left := time.Until(lease.Deadline())
	return event{At: now, Until: now + int64(left), Degraded: lease.Degraded()}
}

// Lost is called when the lease's context has ended with ErrLost.
func (e *Entry) Lost() { e.write(event{At: Now(), What: lost}) }

// Releasing is called right before Release.
func (e *Entry) Releasing() { e.write(event{At: Now(), What: releasing}) }

// Released is called with what Release has returned.
func (e *Entry) Released(err error) {
	line := event{At: Now(), What: released}
	if err != nil {
		line.Err = err.Error()
	}
	e.write(line)
}
