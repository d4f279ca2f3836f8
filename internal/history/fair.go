package history

import (
	"slices"
	"time"
)

// Order returns the fair holds that were granted before one that had come at least slack earlier. slack is what an
// arrival may take to reach the store. Fences tell the order of the grants. A waiter that was refused, and one whose
// process was stopped or killed meanwhile, has left the line: leave those out.
func Order(holds []*Hold, slack time.Duration) (broken []Violation) {
	for _, all := range byKey(holds, func(h *Hold) string { return h.Key }) {
		all = slices.DeleteFunc(all, func(h *Hold) bool { return h.Fence == 0 || !h.Fair })
		slices.SortFunc(all, func(a, b *Hold) int { return compare(a.Fence, b.Fence) })
		// Backwards by grant: each must have come before all that were granted after it, or nearly so.
		var earliest *Hold
		for _, h := range slices.Backward(all) {
			if earliest != nil && h.Asked > earliest.Asked+int64(slack) {
				broken = append(broken, Violation{"fair order", h.Key, "served before one that had come earlier", []*Hold{earliest, h}})
			}
			if earliest == nil || h.Asked < earliest.Asked {
				earliest = h
			}
		}
	}
	return broken
}
