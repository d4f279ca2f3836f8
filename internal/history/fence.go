package history

import (
	"math"
	"slices"

	"github.com/latchkit/latchkit/core"
)

// Fences returns the holds whose fence is not greater than that of every hold on the key that was granted before: before
// for sure, for Acquire had returned it when theirs was called.
//
// excluding says that holds kept one another out: then the order of exclusive ones is known also where the later holder
// had been waiting, and is judged as well.
func Fences(holds []*Hold, excluding bool) (broken []Violation) {
	for _, all := range byKey(holds, func(h *Hold) string { return h.Key }) {
		all = slices.DeleteFunc(all, func(h *Hold) bool { return h.Fence == 0 })
		broken = append(broken, unique(all)...)
		broken = append(broken, growing(all)...)
		if excluding {
			broken = append(broken, successive(all)...)
		}
	}
	return broken
}

func unique(holds []*Hold) (broken []Violation) {
	owners := map[int64]*Hold{}
	for _, h := range holds {
		if other := owners[h.Fence]; other != nil {
			broken = append(broken, Violation{"unique fences", h.Key, "two holds have one fence", []*Hold{other, h}})
		}
		owners[h.Fence] = h
	}
	return broken
}

// growing compares each hold with the greatest fence among those returned before it was asked for. holds are sorted by
// Start.
func growing(holds []*Hold) (broken []Violation) {
	asked := slices.Clone(holds)
	slices.SortStableFunc(asked, func(a, b *Hold) int { return compare(a.Asked, b.Asked) })
	var greatest *Hold
	next := 0
	for _, h := range asked {
		for ; next < len(holds) && holds[next].Start < h.Asked; next++ {
			if greatest == nil || holds[next].Fence > greatest.Fence {
				greatest = holds[next]
			}
		}
		if greatest != nil && h.Fence <= greatest.Fence {
			broken = append(broken, Violation{"growing fences", h.Key, "smaller than one granted before", []*Hold{greatest, h}})
		}
	}
	return broken
}

// successive compares exclusive holds that followed one another. Had the later one been granted first, the store would
// have granted the other while it was held.
func successive(holds []*Hold) (broken []Violation) {
	var last *Hold
	end := int64(math.MinInt64)
	for _, h := range holds {
		if h.Kind != core.Exclusive || h.End() <= h.Start {
			continue
		}
		if last != nil && end <= h.Start && h.Fence <= last.Fence {
			broken = append(broken, Violation{"growing fences", h.Key, "smaller than the holder's before", []*Hold{last, h}})
		}
		last, end = h, max(end, h.End())
	}
	return broken
}
