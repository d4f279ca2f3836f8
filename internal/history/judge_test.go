package history

import (
	"strings"
	"testing"

	"github.com/latchkit/latchkit/core"
)

// hold returns an exclusive hold of key k by process p; times are small numbers.
func hold(p string, fence, asked, start, until int64, mods ...func(*Hold)) *Hold {
	h := &Hold{Request: Request{Key: "k"}, Process: p, Fence: fence, Asked: asked, Start: start, Until: until, Local: until}
	for _, mod := range mods {
		mod(h)
	}
	return h
}

func left(at int64) func(*Hold)     { return func(h *Hold) { h.LeftAt = at } }
func gone(at int64) func(*Hold)     { return func(h *Hold) { h.Seen, h.LostAt = at, at+3 } }
func key(k string) func(*Hold)      { return func(h *Hold) { h.Key = k } }
func shared(h *Hold)                { h.Kind = core.Shared }
func fair(h *Hold)                  { h.Fair = true }
func degraded(h *Hold)              { h.Degraded, h.Fence = true, 0 }
func limited(n int) func(*Hold)     { return func(h *Hold) { h.Kind, h.Limit = core.Limited, n } }
func local(until int64) func(*Hold) { return func(h *Hold) { h.Local = until } }

func TestOverlaps(t *testing.T) {
	for name, c := range map[string]struct {
		holds []*Hold
		want  string // part of the violation; none when empty
	}{
		"one after the other":                  {[]*Hold{hold("a", 1, 1, 2, 90, left(10)), hold("b", 2, 1, 10, 90)}, ""},
		"taken over at the deadline":           {[]*Hold{hold("a", 1, 1, 2, 10), hold("b", 2, 1, 10, 90)}, ""},
		"taken over when it was lost":          {[]*Hold{hold("a", 1, 1, 2, 90, gone(9)), hold("b", 2, 1, 10, 90)}, ""},
		"returned when it had ended":           {[]*Hold{hold("a", 1, 1, 2, 90), hold("b", 2, 1, 50, 40)}, ""},
		"other keys":                           {[]*Hold{hold("a", 1, 1, 2, 90), hold("b", 2, 1, 3, 90, key("other"))}, ""},
		"refused":                              {[]*Hold{hold("a", 1, 1, 2, 90), hold("b", 0, 1, 0, 0)}, ""},
		"before its release":                   {[]*Hold{hold("a", 1, 1, 2, 90, left(11)), hold("b", 2, 1, 10, 90)}, "two holders"},
		"before its deadline":                  {[]*Hold{hold("a", 1, 1, 2, 11), hold("b", 2, 1, 10, 90)}, "two holders"},
		"before the loss":                      {[]*Hold{hold("a", 1, 1, 2, 90, gone(11)), hold("b", 2, 1, 10, 90)}, "two holders"},
		"within a longer one":                  {[]*Hold{hold("a", 1, 1, 2, 90), hold("b", 2, 1, 10, 20)}, "two holders"},
		"behind a short one in a long one":     {[]*Hold{hold("a", 1, 1, 2, 90), hold("b", 2, 1, 90, 91), hold("c", 3, 1, 90, 99)}, "two holders"},
		"readers":                              {[]*Hold{hold("a", 1, 1, 2, 90, shared), hold("b", 2, 1, 3, 90, shared)}, ""},
		"writer beside a reader":               {[]*Hold{hold("a", 1, 1, 2, 90, shared), hold("b", 2, 1, 3, 90)}, "exclusive beside shared"},
		"reader beside a writer":               {[]*Hold{hold("a", 1, 1, 2, 90), hold("b", 2, 1, 3, 90, shared)}, "shared beside exclusive"},
		"reader beside limited":                {[]*Hold{hold("a", 1, 1, 2, 90, limited(9)), hold("b", 2, 1, 3, 90, shared)}, "shared beside limited"},
		"within the limit":                     {[]*Hold{hold("a", 1, 1, 2, 9, limited(2)), hold("b", 2, 1, 3, 90, limited(2)), hold("c", 3, 1, 9, 90, limited(2))}, ""},
		"past the limit":                       {[]*Hold{hold("a", 1, 1, 2, 10, limited(2)), hold("b", 2, 1, 3, 90, limited(2)), hold("c", 3, 1, 9, 90, limited(2))}, "3 holders, and 2 is the limit"},
		"past another's limit":                 {[]*Hold{hold("a", 1, 1, 2, 90, limited(1)), hold("b", 2, 1, 3, 90, limited(9))}, "2 holders, and 1 is the limit"},
		"degraded beside another process":      {[]*Hold{hold("a", 1, 1, 2, 90), hold("b", 0, 1, 3, 90, degraded)}, ""},
		"degraded beside its own process":      {[]*Hold{hold("a", 1, 1, 2, 90), hold("a", 0, 1, 3, 90, degraded)}, "in one process"},
		"turned degraded, then another":        {[]*Hold{hold("a", 1, 1, 2, 10, local(90)), hold("b", 2, 1, 11, 90)}, ""},
		"turned degraded, then its own":        {[]*Hold{hold("a", 1, 1, 2, 10, local(90)), hold("a", 2, 1, 11, 90)}, "in one process"},
		"turned degraded, before its deadline": {[]*Hold{hold("a", 1, 1, 2, 10, local(90)), hold("b", 2, 1, 9, 90)}, "two holders"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, Overlaps(c.holds), c.want) })
	}
}

func TestFences(t *testing.T) {
	for name, c := range map[string]struct {
		holds     []*Hold
		excluding bool
		want      string
	}{
		"growing":                   {[]*Hold{hold("a", 1, 1, 2, 5), hold("b", 2, 3, 6, 9)}, true, ""},
		"equal":                     {[]*Hold{hold("a", 1, 1, 2, 5), hold("b", 1, 1, 6, 9)}, false, "two holds have one fence"},
		"smaller":                   {[]*Hold{hold("a", 7, 1, 2, 5), hold("b", 6, 3, 6, 9)}, false, "smaller than one granted before"},
		"smaller than an older":     {[]*Hold{hold("a", 7, 1, 2, 5), hold("b", 8, 3, 4, 9), hold("c", 6, 9, 9, 9)}, false, "smaller than one granted before"},
		"smaller after a wait":      {[]*Hold{hold("a", 7, 1, 2, 5), hold("b", 6, 1, 6, 9)}, true, "smaller than the holder's before"},
		"order not known":           {[]*Hold{hold("a", 7, 1, 2, 5), hold("b", 6, 1, 6, 9)}, false, ""},
		"readers at the same time":  {[]*Hold{hold("a", 7, 1, 3, 5, shared), hold("b", 6, 2, 4, 9, shared)}, true, ""},
		"a late return":             {[]*Hold{hold("a", 7, 1, 2, 5), hold("b", 6, 1, 6, 4)}, true, ""},
		"a later reader":            {[]*Hold{hold("a", 7, 1, 2, 9, shared), hold("b", 6, 3, 4, 9, shared)}, true, "smaller than one granted before"},
		"other keys":                {[]*Hold{hold("a", 7, 1, 2, 5), hold("b", 7, 3, 6, 9, key("other"))}, true, ""},
		"none where nothing fences": {[]*Hold{hold("a", 7, 1, 2, 5), hold("b", 0, 3, 6, 9, degraded)}, true, ""},
	} {
		t.Run(name, func(t *testing.T) { expect(t, Fences(c.holds, c.excluding), c.want) })
	}
}

func TestOrder(t *testing.T) {
	const heartbeat = 100
	// Each is heard of at these times, within 2.
	waits := func(p string, fence, asked, start int64, at ...int64) *Hold {
		h := hold(p, fence, asked, start, start+10, fair)
		for _, at := range at {
			h.Heard = append(h.Heard, Sign{at - 1, at + 1})
		}
		h.Grants = []Sign{{start - 2, start}}
		return h
	}
	gaveUp := func(p string, asked, until int64, at ...int64) *Hold {
		h := waits(p, 0, asked, until, at...)
		h.Start, h.Grants, h.GaveUp = 0, nil, until
		return h
	}
	late := func(h *Hold, at int64) *Hold {
		h.Grants = append([]Sign{{at - 1, at + 1}}, h.Grants...)
		return h
	}
	for name, c := range map[string]struct {
		holds []*Hold
		want  string
	}{
		"in order":                       {[]*Hold{waits("a", 1, 100, 200, 110), waits("b", 2, 120, 210, 130)}, ""},
		"a push in":                      {[]*Hold{waits("a", 2, 100, 210, 110), waits("b", 1, 120, 200, 130)}, "served before"},
		"two places back":                {[]*Hold{waits("a", 3, 100, 220, 110), waits("b", 1, 120, 200, 130), waits("c", 2, 100, 210, 115)}, "served before"},
		"asked for before it stood":      {[]*Hold{waits("a", 2, 100, 210, 120), waits("b", 1, 120, 200, 130)}, ""},
		"a place is not known":           {[]*Hold{waits("a", 2, 100, 210), waits("b", 1, 120, 200, 130)}, ""},
		"it need not stand in line":      {[]*Hold{waits("a", 2, 100, 210, 110), hold("b", 1, 120, 200, 230)}, ""},
		"silent":                         {[]*Hold{waits("a", 2, 100, 310, 110, 200), waits("b", 1, 120, 307, 130)}, ""},
		"not silent any more":            {[]*Hold{waits("a", 2, 100, 310, 110, 230), waits("b", 1, 120, 307, 130)}, "served before"},
		"another of its engine speaks":   {[]*Hold{waits("a", 2, 100, 310, 110, 200), waits("b", 1, 120, 307, 130), gaveUp("a", 115, 240, 230)}, "served before"},
		"another engine speaks":          {[]*Hold{waits("a", 2, 100, 310, 110, 200), waits("b", 1, 120, 307, 130), gaveUp("c", 115, 240, 230)}, ""},
		"silent for long, and not then":  {[]*Hold{waits("a", 2, 100, 310, 110, 280), waits("b", 1, 120, 307, 130)}, "served before"},
		"its place went to the first":    {[]*Hold{waits("a", 3, 100, 220, 110), waits("b", 2, 120, 200, 130), waits("a", 1, 90, 180)}, ""},
		"the first had one":              {[]*Hold{waits("a", 3, 100, 220, 110), waits("b", 2, 120, 200, 130), waits("a", 1, 90, 180, 112)}, "served before"},
		"the first had given up":         {[]*Hold{waits("a", 3, 100, 220, 110), waits("b", 2, 120, 200, 130), gaveUp("a", 90, 112)}, "served before"},
		"a grant came too late":          {[]*Hold{late(waits("a", 2, 100, 210, 110, 140), 125), waits("b", 1, 120, 200, 130)}, ""},
		"it had another place":           {[]*Hold{late(waits("a", 2, 90, 210, 100, 115), 110), waits("b", 1, 120, 200, 130)}, "served before"},
		"what became of it is not known": {[]*Hold{waits("a", 3, 100, 220, 110), waits("b", 2, 120, 200, 130), gaveUp("a", 90, 0)}, ""},
	} {
		t.Run(name, func(t *testing.T) { expect(t, Order(c.holds, heartbeat), c.want) })
	}
}

func TestGoesBack(t *testing.T) {
	expect(t, GoesBack([]Update{{Key: "k", Fence: 1, Wrote: 1}, {Key: "k", Fence: 2, Wrote: 2}, {Key: "j", Fence: 1, Wrote: 1}}), "")
	expect(t, GoesBack([]Update{{Key: "k", Fence: 2, Wrote: 1}, {Key: "k", Fence: 1, Wrote: 2}}), "2 by fence 1 after 1 by fence 2")
	expect(t, GoesBack([]Update{{Key: "k", Fence: 1, Wrote: 2}, {Key: "k", Fence: 2, Wrote: 2}}), "2 by fence 2 after 2 by fence 1")
}

func TestLinearizable(t *testing.T) {
	one := Update{Key: "k", Read: 0, Wrote: 1, Claimed: 1, Accepted: 5}
	expect(t, Linearizable("rule", []Update{one, {Key: "k", Read: 1, Wrote: 2, Claimed: 4, Accepted: 9}}), "")
	expect(t, Linearizable("rule", []Update{one, {Key: "k", Read: 0, Wrote: 1, Claimed: 4, Accepted: 9}}), "not linearizable")
	expect(t, Linearizable("rule", []Update{one, {Key: "k", Read: 0, Wrote: 1, Claimed: 6, Accepted: 9}}), "not linearizable")
	expect(t, Linearizable("rule", []Update{one, {Key: "j", Read: 0, Wrote: 1, Claimed: 4, Accepted: 9}}), "")
}

// The work of two holders at once: the plain register loses an update, and the fenced one refuses the older holder.
func TestRegisterUnderTwoHolders(t *testing.T) {
	r := NewRegister()
	claim := func(fence int64) (int64, int64) {
		fenced, plain, ok := r.Claim("k", fence)
		if !ok {
			t.Fatalf("claim by fence %d refused", fence)
		}
		return fenced, plain
	}
	oldFenced, oldPlain := claim(1)
	newFenced, newPlain := claim(2)
	if r.Write("k", 1, oldFenced+1, oldPlain+1) {
		t.Error("the older holder wrote after the newer one had read")
	}
	if !r.Write("k", 2, newFenced+1, newPlain+1) {
		t.Error("the newer holder was refused")
	}
	if _, _, ok := r.Claim("k", 1); ok || r.Refused() != 2 {
		t.Errorf("the older holder reads: %v; %d refused, want 2", ok, r.Refused())
	}
	if _, _, ok := r.Claim("k", 0); ok {
		t.Error("a hold without a fence may read")
	}
	expect(t, append(Linearizable("fenced", r.Fenced()), GoesBack(r.Fenced())...), "")
	expect(t, Linearizable("plain", r.Plain()), "not linearizable")
}

func expect(t *testing.T, broken []Violation, want string) {
	t.Helper()
	switch {
	case want == "" && len(broken) > 0:
		t.Errorf("refused: %v", broken)
	case want != "" && (len(broken) == 0 || !strings.Contains(broken[0].Rule+" "+broken[0].Text, want)):
		t.Errorf("got %v, want %q", broken, want)
	}
}
