package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Inspect implements Inspector. The key is held when as many nodes as make a quorum name one holder, or would if those
// that did not answer named it too. With fewer than a quorum of answers the error is ErrUnavailable, and the Info says
// what is known of each node.
func (b *redLock) Inspect(ctx context.Context, key string) (Info, error) {
	r := b.ask(ctx, "i", key)
	r.mu.Lock()
	votes, err := slices.Clone(r.votes), r.err
	r.mu.Unlock()
	info := Info{Key: key, Waiters: -1}
	var all []*found
	known := map[string]*found{}
	silent := 0
	for i := range votes {
		v := &votes[i]
		info.Nodes = append(info.Nodes, b.nodes[i].info(v))
		if v.mark != 'I' {
			silent++
			continue
		}
		info.Waiters = max(info.Waiters, v.waiters)
		for _, at := range v.stands {
			f := readLock(at, v.readers)
			if other := known[f.owner]; other != nil {
				other.merge(f)
			} else {
				known[f.owner] = f
				all = append(all, f)
			}
		}
	}
	if len(votes)-silent < b.quorum {
		if err == nil {
			err = r.why()
		}
		return info, err
	}
	info.tell(slices.DeleteFunc(all, func(f *found) bool { return f.nodes+silent < b.quorum }))
	return info, nil
}

// tell tells of those who have a quorum, or may have one: the holder that most nodes name, and all who hold beside it. A
// completed mark counts only when nobody holds the key any more.
func (info *Info) tell(all []*found) {
	slices.SortStableFunc(all, func(a, b *found) int { return cmp.Compare(b.weight(), a.weight()) })
	for _, f := range all {
		if first := all[0]; f == first {
			info.Held, info.Completed, info.Foreign = !f.completed, f.completed, f.foreign
			if f.shared && info.Held {
				info.Kind = Shared
			}
		} else if !first.shared || !f.shared || f.completed {
			continue
		}
		info.Holders = append(info.Holders, f.holder())
	}
}

// why says why too few nodes have answered.
func (r *round) why() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.noQuorum()
}

// info tells of a node whose answer was v.
func (n *node) info(v *vote) NodeInfo {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := NodeInfo{Name: n.name, Holds: len(v.stands) > 0, Quarantined: v.quarantine, Offset: n.clock.offset}
	switch {
	case v.mark == 0:
		i.Err = fmt.Errorf("%w: %s: no answer", ErrUnavailable, n.name)
	case v.err != nil:
		i.Err = v.err
	case v.life == "-":
		i.Err = errors.New("latchkit: the node has lost its memory and is not in quarantine yet")
	}
	return i
}

// found is what nodes tell of one holder.
type found struct {
	owner, label       string
	nodes              int
	completed, foreign bool
	shared             bool
	since              time.Time
	left               []time.Duration // by node
	fences             map[int64]int   // how many nodes say so
}

// readLock reads the value of a lock; lua/lock.lua says what it looks like.
func readLock(at standsAt, shared bool) *found {
	f := &found{nodes: 1, left: []time.Duration{at.left}, fences: map[int64]int{}, shared: shared}
	text, _, _ := strings.Cut(at.value, "\x00")
	parts := strings.SplitN(text, ":", 4)
	switch {
	case len(parts) >= 3 && parts[0] == "completed":
		f.owner, f.completed = parts[0], true
		f.since, f.label = stamp(parts[1]), strings.Join(parts[2:], ":")
	case len(parts) == 4 && len(parts[0]) == 32:
		f.owner, f.since, f.label = parts[0], stamp(parts[2]), parts[3]
		if fence, err := strconv.ParseInt(parts[1], 10, 64); err == nil {
			f.fences[fence]++
		}
	default:
		f.owner, f.foreign = at.value, true
	}
	return f
}

// stamp reads "seconds.microseconds".
func stamp(text string) time.Time {
	seconds, micros, _ := strings.Cut(text, ".")
	s, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}
	}
	us, _ := strconv.ParseInt(micros, 10, 64)
	return time.Unix(s, us*1000)
}

func (f *found) weight() int {
	if f.completed {
		return 0
	}
	return f.nodes
}

func (f *found) merge(other *found) {
	f.nodes += other.nodes
	f.left = append(f.left, other.left...)
	for fence, n := range other.fences {
		f.fences[fence] += n
	}
	if !other.since.IsZero() && other.since.Before(f.since) {
		f.since = other.since
	}
}

// holder tells of the holder as a whole: the fence is what most nodes say, the greatest of those where they differ, and
// what remains is the median, which a majority does not undercut.
func (f *found) holder() Holder {
	h := Holder{Label: f.label, Since: f.since, Count: 1}
	slices.SortFunc(f.left, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	h.Remaining = f.left[len(f.left)/2]
	most := 0
	for fence, n := range f.fences {
		h.fences = append(h.fences, fence)
		if n > most || n == most && fence > h.Fence {
			most, h.Fence = n, fence
		}
	}
	return h
}

// ForceRelease implements Inspector: the key is taken away on a majority of the nodes at least, so that its holder
// finds no majority any more and is lost with its next renewal. ErrUnavailable: too few nodes could be reached; those
// that were have let go all the same.
func (b *redLock) ForceRelease(ctx context.Context, key string) error {
	err := b.ask(ctx, "x", key).outcome()
	if errors.Is(err, errTooLate) {
		err = b.ask(ctx, "x", key).outcome() // now that the nodes' clocks are known
	}
	return err
}

func (r *round) outcome() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
