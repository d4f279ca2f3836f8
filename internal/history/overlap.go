package history

import (
	"fmt"
	"slices"

	"github.com/latchkit/latchkit/core"
)

// Violation is a promise that a history breaks.
type Violation struct {
	Rule  string
	Key   string
	Text  string
	Holds []*Hold // the last of them is the one that should not have been
}

func (v Violation) String() string {
	text := fmt.Sprintf("%s: %q: %s", v.Rule, v.Key, v.Text)
	for _, h := range v.Holds {
		text += "\n\t" + h.String()
	}
	return text
}

// Overlaps returns the holds that were granted beside others that do not bear them: two exclusive ones, a reader beside
// a writer, more than a limit. Those that the store does not stand behind are compared within their process only.
func Overlaps(holds []*Hold) (broken []Violation) {
	for _, all := range byKey(holds, func(h *Hold) string { return h.Key }) {
		broken = append(broken, sweep("overlap", all, (*Hold).End)...)
	}
	for _, all := range byKey(holds, func(h *Hold) string { return h.Process + "\x00" + h.Key }) {
		broken = append(broken, sweep("overlap in one process", all, (*Hold).LocalEnd)...)
	}
	return broken
}

// byKey groups the holds that were granted, each group sorted by Start.
func byKey(holds []*Hold, name func(*Hold) string) map[string][]*Hold {
	groups := map[string][]*Hold{}
	for _, h := range holds {
		if h.Granted() {
			groups[name(h)] = append(groups[name(h)], h)
		}
	}
	for _, all := range groups {
		slices.SortStableFunc(all, func(a, b *Hold) int { return compare(a.Start, b.Start) })
	}
	return groups
}

// sweep goes through the holds of one key in time. end is exclusive.
func sweep(rule string, holds []*Hold, end func(*Hold) int64) (broken []Violation) {
	var live []*Hold
	for _, h := range holds {
		live = slices.DeleteFunc(live, func(other *Hold) bool { return end(other) <= h.Start })
		if end(h) <= h.Start {
			continue
		}
		if why := Collide(live, h); why != "" {
			broken = append(broken, Violation{rule, h.Key, why, append(slices.Clone(live), h)})
		}
		live = append(live, h)
	}
	return broken
}

// Collide says why h must not be beside those that live; "" if it may be.
func Collide(live []*Hold, h *Hold) string {
	limit := h.Limit
	for _, other := range live {
		if other.Kind != h.Kind {
			return fmt.Sprintf("%v beside %v", h.Kind, other.Kind)
		}
		limit = min(limit, other.Limit)
	}
	switch {
	case h.Kind == core.Exclusive && len(live) > 0:
		return "two holders"
	case h.Kind == core.Limited && len(live) >= limit:
		return fmt.Sprintf("%d holders, and %d is the limit", len(live)+1, limit)
	}
	return ""
}
