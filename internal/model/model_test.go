package model

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
)

// long is what make model sets: large models as well, for minutes.
var long = flag.Bool("long", false, "explore the large models too")

const most = 12_000_000

func size(nodes int, life, tries, losses, forces byte) Rules {
	return Rules{Nodes: nodes, Life: life, Tries: tries, Losses: losses, Forces: forces}
}

// uneven has one counter far ahead: a node whose clock was fast.
func uneven(r Rules) Rules {
	r.Counters = []byte{5, 0, 0, 0, 0}[:r.Nodes]
	return r
}

func (r Rules) String() string {
	return fmt.Sprintf("%d nodes, life %d, %d tries, %d losses, %d forces, counters %v", r.Nodes, r.Life, r.Tries,
		r.Losses, r.Forces, r.Counters)
}

func explore(t *testing.T, r Rules) *Finding {
	t.Helper()
	began := time.Now()
	states, all, finding := Explore(r, most)
	t.Logf("%v: %d states in %v", r, states, time.Since(began).Round(time.Millisecond))
	switch {
	case finding != nil || all:
	case *long:
		t.Logf("%v: there are more than %d states; no promise is broken in those", r, most)
	default:
		t.Errorf("%v: there are more than %d states", r, most)
	}
	return finding
}

// Nothing that can happen breaks a promise.
func TestRedLockKeepsItsPromises(t *testing.T) {
	models := []Rules{size(3, 1, 2, 2, 0), uneven(size(3, 1, 3, 0, 0)), size(3, 2, 1, 0, 1), uneven(size(5, 1, 2, 0, 0))}
	if *long {
		models = append(models, size(3, 2, 2, 1, 0), size(3, 2, 1, 1, 1), size(3, 2, 2, 2, 0), size(3, 1, 2, 1, 1),
			size(3, 1, 3, 2, 0), size(5, 1, 2, 1, 0), size(5, 1, 2, 3, 0), size(5, 1, 1, 1, 1), size(5, 2, 2, 0, 0),
			size(5, 2, 1, 0, 1), uneven(size(5, 1, 3, 0, 0)))
	}
	for _, r := range models {
		if finding := explore(t, r); finding != nil {
			t.Errorf("%v: %s:\n  %s", r, finding.Broken, strings.Join(finding.Course, "\n  "))
		}
	}
}

// Each rule is needed: without it a promise is broken, and the model sees it.
func TestEachRuleIsNeeded(t *testing.T) {
	for _, c := range []struct {
		without string
		broken  string
		leave   func(*Rules)
		three   Rules
		five    Rules
		large   bool // with five nodes
	}{
		{"write-back", "fence", func(r *Rules) { r.NoWriteBack = true },
			uneven(size(3, 1, 2, 0, 0)), uneven(size(5, 1, 2, 0, 0)), false},
		{"quarantine", "two clients hold", func(r *Rules) { r.NoQuarantine = true },
			size(3, 1, 2, 1, 0), size(5, 1, 2, 1, 0), false},
		{"the run id", "two clients hold", func(r *Rules) { r.NoRunID = true },
			size(3, 1, 2, 1, 0), size(5, 1, 2, 1, 0), false},
		{"looking at all nodes", "two clients hold", func(r *Rules) { r.AnsweringAreAll = true },
			size(3, 1, 2, 2, 0), size(5, 1, 2, 3, 0), true},
		{"the deletion rule", "is back", func(r *Rules) { r.NoDeletion = true },
			size(3, 1, 1, 0, 1), size(5, 1, 1, 0, 1), false},
		{"a quorum of those that always had it", "force", func(r *Rules) { r.FilledCounts = true },
			size(3, 1, 1, 1, 1), size(5, 1, 1, 1, 1), true},
		{"the trace of a force", "force", func(r *Rules) { r.NoTrace = true },
			size(3, 1, 1, 0, 1), size(5, 1, 1, 0, 1), true},
		{"doubt about lost answers", "force", func(r *Rules) { r.NoDoubt = true },
			size(3, 2, 1, 0, 1), size(5, 2, 1, 0, 1), true},
	} {
		t.Run(c.without, func(t *testing.T) {
			for _, r := range []Rules{c.three, c.five} {
				if c.large && r.Nodes == 5 && !*long {
					continue
				}
				c.leave(&r)
				finding := explore(t, r)
				if finding == nil {
					t.Errorf("%v: no promise is broken without it", r)
				} else if !strings.Contains(finding.Broken, c.broken) {
					t.Errorf("%v: %s, want %q", r, finding.Broken, c.broken)
				}
			}
		})
	}
}
