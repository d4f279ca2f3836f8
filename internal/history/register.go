package history

import (
	"bufio"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Register is what locks protect in these histories: numbers that holders read, work on and write back plus one. It is
// kept twice: behind fences, where an access with a smaller fence than the greatest so far is refused, and plainly,
// where a holder that comes too late takes it back.
//
// A fence guards from the first access on, so a holder claims the register when it reads: a check at the write alone
// would let an older holder write between the read and the write of a newer one.
type Register struct {
	mu      sync.Mutex
	cells   map[string]*cell
	fenced  []Update
	plain   []Update
	refused int
}

type cell struct {
	fence         int64
	fenced, plain int64
	claims        map[int64]Update // by fence, not yet written
}

// Update is one read and the write that followed.
type Update struct {
	Key      string
	Fence    int64
	Read     int64
	Claimed  int64 // when it was read
	Wrote    int64
	Accepted int64 // when it was written
}

// NewRegister returns a register of zeros.
func NewRegister() *Register { return &Register{cells: map[string]*cell{}} }

// Claim reads both numbers of key for the holder of fence. ok is false when the fenced one is refused.
func (r *Register) Claim(key string, fence int64) (fenced, plain int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cells[key]
	if c == nil {
		c = &cell{claims: map[int64]Update{}}
		r.cells[key] = c
	}
	claim := Update{Key: key, Fence: fence, Read: c.fenced, Claimed: Now()}
	if ok = r.admits(c, fence); ok {
		c.fence = fence
	}
	c.claims[fence] = claim
	return c.fenced, c.plain, ok
}

// admits tells whether fence may touch the fenced number, and counts it when not.
func (r *Register) admits(c *cell, fence int64) bool {
	if fence == 0 || fence < c.fence {
		r.refused++
		return false
	}
	return true
}

// Write writes both numbers, and reports whether the fenced one was accepted.
func (r *Register) Write(key string, fence, fenced, plain int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cells[key]
	if c == nil {
		return false
	}
	claim, claimed := c.claims[fence]
	delete(c.claims, fence)
	if !claimed {
		return false
	}
	claim.Accepted = Now()
	c.plain = plain
	simple := claim
	simple.Read, simple.Wrote = plain-1, plain
	r.plain = append(r.plain, simple)
	if !r.admits(c, fence) {
		return false
	}
	c.fence, c.fenced = fence, fenced
	claim.Wrote = fenced
	r.fenced = append(r.fenced, claim)
	return true
}

// Refused is how many accesses the fences have kept out.
func (r *Register) Refused() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}

// Fenced are the updates behind fences, Plain those without, in the order in which they were made.
func (r *Register) Fenced() []Update {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Update(nil), r.fenced...)
}

// Plain are the updates without fences, in the order in which they were made.
func (r *Register) Plain() []Update {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Update(nil), r.plain...)
}

// GoesBack returns the updates that set a number to less than it was, or came with a smaller fence than one before.
func GoesBack(updates []Update) (broken []Violation) {
	last := map[string]Update{}
	for _, u := range updates {
		if before := last[u.Key]; u.Fence < before.Fence || u.Wrote <= before.Wrote {
			broken = append(broken, Violation{Rule: "the register never goes back", Key: u.Key,
				Text: fmt.Sprintf("%d by fence %d after %d by fence %d", u.Wrote, u.Fence, before.Wrote, before.Fence)})
		}
		last[u.Key] = u
	}
	return broken
}

// Linearizable returns a violation when the updates cannot each have happened at one instant between their read and
// their write, one after the other: when the work of two holders has mixed.
func Linearizable(rule string, updates []Update) []Violation {
	ops := make([]porcupine.Operation, len(updates))
	for i, u := range updates {
		ops[i] = porcupine.Operation{Input: u, Call: u.Claimed, Return: u.Accepted}
	}
	switch porcupine.CheckOperationsTimeout(registerModel, ops, time.Minute) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return []Violation{{Rule: rule, Text: "not decided within a minute"}}
	default:
		return []Violation{{Rule: rule, Text: fmt.Sprintf("%d updates are not linearizable: an update was lost", len(updates))}}
	}
}

var registerModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		at := map[string]int{}
		for _, op := range history {
			key := op.Input.(Update).Key
			i, known := at[key]
			if !known {
				i = len(parts)
				at[key], parts = i, append(parts, nil)
			}
			parts[i] = append(parts[i], op)
		}
		return parts
	},
	Init: func() any { return int64(0) },
	Step: func(state, input, _ any) (bool, any) {
		u := input.(Update)
		return u.Read == state.(int64), u.Wrote
	},
}

// Serve lets other processes use the register, until l is closed. It returns when the last of them has gone.
func (r *Register) Serve(l net.Listener) {
	var visitors sync.WaitGroup
	defer visitors.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		visitors.Go(func() {
			defer conn.Close()
			r.answer(conn)
		})
	}
}

// answer serves one connection: a line each for "c key fence" and "w key fence fenced plain".
func (r *Register) answer(conn net.Conn) {
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		var action, key string
		var fence, fenced, plain int64
		_, _ = fmt.Sscan(lines.Text(), &action, &key, &fence, &fenced, &plain) // of which a claim has the first three only
		ok := false
		switch action {
		case "c":
			fenced, plain, ok = r.Claim(key, fence)
		case "w":
			ok = r.Write(key, fence, fenced, plain)
		}
		if _, err := fmt.Fprintln(conn, ok, fenced, plain); err != nil {
			return
		}
	}
}

// RemoteRegister is a Register in another process. It is for one goroutine.
type RemoteRegister struct {
	conn  net.Conn
	lines *bufio.Scanner
}

// DialRegister connects to a Register that is served at a unix socket.
func DialRegister(path string) (*RemoteRegister, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil, fmt.Errorf("history: register: %w", err)
	}
	return &RemoteRegister{conn, bufio.NewScanner(conn)}, nil
}

// Claim is Register.Claim.
func (r *RemoteRegister) Claim(key string, fence int64) (fenced, plain int64, ok bool, err error) {
	return r.ask(fmt.Sprintf("c %s %d", key, fence))
}

// Write is Register.Write.
func (r *RemoteRegister) Write(key string, fence, fenced, plain int64) (ok bool, err error) {
	_, _, ok, err = r.ask(fmt.Sprintf("w %s %d %d %d", key, fence, fenced, plain))
	return ok, err
}

func (r *RemoteRegister) ask(line string) (fenced, plain int64, ok bool, err error) {
	if _, err = fmt.Fprintln(r.conn, line); err != nil {
		return 0, 0, false, fmt.Errorf("history: register: %w", err)
	}
	if !r.lines.Scan() {
		return 0, 0, false, fmt.Errorf("history: the register has gone: %w", r.lines.Err())
	}
	_, err = fmt.Sscan(r.lines.Text(), &ok, &fenced, &plain)
	return fenced, plain, ok, err
}

// Close gives the connection back.
func (r *RemoteRegister) Close() error { return r.conn.Close() }
