package history

import (
	"cmp"
	"slices"
	"time"
)

// Order returns the exclusive fair holds that were granted before one that was known to stand in line when they were
// asked for. Fences tell the order of the grants. Hand it those as well that were refused: what the store has heard of
// them tells that their engine lives, of which each process has one.
//
// One may be passed over when its engine may have been silent for a heartbeat, as far as anybody can tell from when its
// operations went out and were answered.
func Order(holds []*Hold, heartbeat time.Duration) (broken []Violation) {
	lines := map[string][]*Hold{}
	for _, h := range holds {
		if h.Fair {
			lines[h.Key] = append(lines[h.Key], h)
		}
	}
	for _, line := range lines {
		granted := slices.DeleteFunc(slices.Clone(line), func(h *Hold) bool { return h.Fence == 0 || len(h.Grants) == 0 })
		slices.SortFunc(granted, func(a, b *Hold) int { return cmp.Compare(a.Fence, b.Fence) })
		for i, h := range granted {
			for _, passed := range granted[i+1:] {
				if inLine(passed, line) < h.Asked && !silent(passed, line, h.Grants[len(h.Grants)-1], heartbeat) {
					broken = append(broken, Violation{"fair order", h.Key, "served before one that stood in line", []*Hold{passed, h}})
				}
			}
		}
	}
	return broken
}

// inLine is when h is known to stand in line. Its engine's places are the engine's, and whoever came before h takes the
// first of them: until such a one has a place of its own, or has left, h's may become another.
func inLine(h *Hold, line []*Hold) int64 {
	from := h.placed()
	at := from
	for _, other := range line {
		if other.Process != h.Process || other.Asked >= from {
			continue
		}
		settled := other.placed()
		if left := max(other.Start, other.GaveUp); left != 0 { // one of them is zero
			settled = min(settled, left)
		}
		at = max(at, settled)
	}
	return at
}

// placed is when h's present place is first known: a grant that came too late has cost it the one before.
func (h *Hold) placed() int64 {
	var since int64
	if n := len(h.Grants); n > 1 {
		since = h.Grants[n-2].Answered
	}
	for _, s := range h.Heard {
		if s.Sent >= since {
			return s.Answered
		}
	}
	return forever // it was served at once, or nobody knows
}

const forever = 1<<63 - 1

// silent tells whether the store may not have heard of h's engine for a heartbeat at some time within during.
func silent(h *Hold, line []*Hold, during Sign, heartbeat time.Duration) bool {
	var signs []Sign
	for _, other := range line {
		if other.Process == h.Process {
			signs = append(signs, other.Heard...)
		}
	}
	slices.SortFunc(signs, func(a, b Sign) int { return cmp.Compare(a.Answered, b.Answered) })
	signs = append(signs, Sign{Answered: forever})
	var last int64 // what is known to have been heard by then was sent at it, or later
	for _, s := range signs {
		if until := min(s.Answered, during.Answered); until >= during.Sent && until-last >= int64(heartbeat) {
			return true
		}
		last = max(last, s.Sent)
	}
	return false
}
