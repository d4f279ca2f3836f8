package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"
)

// Hold is one lease as its holder saw it. Times are those of Now; 0 stands for what never happened.
type Hold struct {
	Request
	Process string
	ID      int64
	Fence   int64 // 0: none

	Asked    int64
	Heard    []Sign // it stood in line then, and its engine lived
	Grants   []Sign // what was granted; all but the last came too late
	Start    int64  // Acquire returned it
	Until    int64  // the last deadline known while the store stood behind it
	Local    int64  // the last deadline known, that of a degraded lease included
	Seen     int64  // it was live, the last time that its holder looked
	LostAt   int64  // its holder heard of the loss, which may have been some time before
	LeftAt   int64  // Release was called
	Degraded bool   // the store did not stand behind it when it was granted
	Left     string
	Refused  string
	GaveUp   int64 // Acquire returned an error
}

// Sign is an operation: the store has carried it out in between.
type Sign struct{ Sent, Answered int64 }

// Granted reports whether there was a lease at all.
func (h *Hold) Granted() bool { return h.Start != 0 }

// End is when the holder had no reason any more to trust the lease to keep others out of other processes.
func (h *Hold) End() int64 {
	if h.Degraded {
		return h.Start
	}
	return h.ended(h.Until)
}

// LocalEnd is the same for others of its own process.
func (h *Hold) LocalEnd() int64 { return h.ended(h.Local) }

func (h *Hold) ended(until int64) int64 {
	if h.LostAt != 0 {
		until = min(until, h.Seen)
	}
	return h.told(until)
}

// Told is when its holder knew at the latest that the lease had ended.
func (h *Hold) Told() int64 {
	if h.LostAt != 0 {
		return h.told(min(h.Until, h.LostAt))
	}
	return h.told(h.Until)
}

func (h *Hold) told(until int64) int64 {
	if h.LeftAt != 0 {
		until = min(until, h.LeftAt)
	}
	return max(until, h.Start)
}

func (h *Hold) String() string {
	ms := func(t int64) string {
		if t == 0 {
			return "-"
		}
		return time.Duration(t - t%int64(time.Microsecond)).String()
	}
	return fmt.Sprintf("%s/%d %v %q fence %d: asked %s, held %s to %s (until %s, lost %s, left %s)", h.Process, h.ID,
		h.Kind, h.Key, h.Fence, ms(h.Asked), ms(h.Start), ms(h.End()), ms(h.Until), ms(h.LostAt), ms(h.LeftAt))
}

// Read puts the histories of all processes together, sorted by Asked. A last line that was cut short by the end of its
// process is left out.
func Read(paths ...string) ([]*Hold, error) {
	var all []*Hold
	for _, path := range paths {
		holds, err := readOne(path)
		if err != nil {
			return nil, fmt.Errorf("history: %s: %w", path, err)
		}
		all = append(all, holds...)
	}
	slices.SortStableFunc(all, func(a, b *Hold) int { return compare(a.Asked, b.Asked) })
	return all, nil
}

func compare(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func readOne(path string) ([]*Hold, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	whole := text[:bytes.LastIndexByte(text, '\n')+1]
	if len(whole) == 0 {
		return nil, nil
	}
	lines := bufio.NewScanner(bytes.NewReader(whole))
	lines.Buffer(nil, 1<<20)
	lines.Scan()
	var head header
	if err := json.Unmarshal(lines.Bytes(), &head); err != nil {
		return nil, err
	}
	var holds []*Hold
	byID := map[int64]*Hold{}
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, err
		}
		h := byID[e.Hold]
		if h == nil {
			h = &Hold{Process: head.Process, ID: e.Hold}
			byID[e.Hold] = h
			holds = append(holds, h)
		}
		h.take(e)
	}
	return holds, lines.Err()
}

// take adds an event. They come in the order in which they were written, which for one hold is that of its times but for
// a loss that is told while its holder is busy.
func (h *Hold) take(e event) {
	switch e.What {
	case asked:
		h.Request = Request{e.Key, e.Kind, e.Limit, e.Fair}
		h.Asked = e.At
	case heard:
		if e.Granted {
			h.Grants = append(h.Grants, Sign{e.Sent, e.At})
		} else {
			h.Heard = append(h.Heard, Sign{e.Sent, e.At})
		}
	case refused:
		h.Refused, h.GaveUp = e.Err, e.At
	case got:
		h.Start, h.Seen, h.Fence, h.Degraded, h.Until, h.Local = e.At, e.At, e.Fence, e.Degraded, e.Until, e.Until
	case still:
		h.Seen = e.At
		h.Local = max(h.Local, e.Until)
		if !e.Degraded {
			h.Until = max(h.Until, e.Until)
		}
	case lost:
		h.LostAt = e.At
	case releasing:
		h.LeftAt = e.At
	case released:
		h.Left = e.Err
	}
}
