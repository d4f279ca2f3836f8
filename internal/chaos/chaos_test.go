package chaos

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestChaos lets every fault strike once, at moments chosen by the seed; with -chaos.duration random ones for so long.
// -run TestChaos/redis/cut picks one.
func TestChaos(t *testing.T) {
	t.Logf("-chaos.seed %d", *chaosSeed)
	var results table
	t.Cleanup(func() { results.print(t) })
	if *chaosDuration > 0 {
		chaosFor(t, *chaosDuration, &results)
		return
	}
	for i := range rows {
		r := &rows[i]
		t.Run(r.name, func(t *testing.T) {
			if r.long {
				t.Skip("too long for make test; make chaos has it")
			}
			t.Parallel()
			r.run(t, seedOf(r.name), &results)
		})
	}
}

// lanes is how many rows run at a time in the long form.
const lanes = 3

// chaosFor runs the rows in random order, again and again, until d has passed.
func chaosFor(t *testing.T, d time.Duration, results *table) {
	end := time.Now().Add(d)
	var all sync.WaitGroup
	for lane := range lanes {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(*chaosSeed, uint64(lane)))
			var order []int
			for round := 0; time.Now().Before(end) && !t.Failed(); round++ {
				if len(order) == 0 {
					order = rng.Perm(len(rows))
				}
				r, seed := &rows[order[0]], rng.Uint64()
				order = order[1:]
				t.Run(fmt.Sprintf("lane-%d/%d/%s", lane, round, r.name), func(t *testing.T) { r.run(t, seed, results) })
			}
		})
	}
	all.Wait()
}

// run lets the row happen once.
func (r *row) run(t *testing.T, seed uint64, results *table) {
	a := newArena(t, seed, r.servers)
	r.strike(a)
	recovered := a.awaitWork()
	results.add(a.verdict(r, recovered))
}

// seedOf gives each row choices of its own that do not depend on which others run.
func seedOf(name string) uint64 {
	seed := *chaosSeed
	for _, c := range []byte(strings.ToLower(name)) {
		seed = seed*1099511628211 + uint64(c)
	}
	return seed
}
