package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/internal/redistest"
)

// scenario is one thing to measure, in a process of its own.
type scenario struct {
	name   string
	title  string
	pinned bool          // client and server share one CPU
	limit  time.Duration // the process is ended after it
	long   bool          // only when asked for by name
	run    func(*stage)
}

// report is what a scenario hands to the table.
type report struct {
	Name, Title string
	Turns       []turn
	Facts       []string
	Verdicts    []verdict
}

// verdict is a target and what was measured.
type verdict struct {
	What   string
	Got    float64
	Unit   string
	AtMost bool
	Limit  float64
}

func (v verdict) met() bool {
	if v.Got == unmeasured {
		return false
	}
	if v.AtMost {
		return v.Got <= v.Limit
	}
	return v.Got >= v.Limit
}

// stage is where a scenario runs.
type stage struct {
	*host
	report  report
	rounds  int
	profile string
	name    string
}

func (s *stage) fact(format string, args ...any) {
	s.report.Facts = append(s.report.Facts, fmt.Sprintf(format, args...))
}

func (s *stage) atMost(what string, got float64, unit string, limit float64) {
	s.report.Verdicts = append(s.report.Verdicts, verdict{what, got, unit, true, limit})
}

func (s *stage) atLeast(what string, got float64, unit string, limit float64) {
	s.report.Verdicts = append(s.report.Verdicts, verdict{what, got, unit, false, limit})
}

// redis starts a server, and returns its address and a client that reads its counters.
func (s *stage) redis() (addr string, counting *redis.Client) {
	server := redistest.Start(s)
	return server.Addr(), server.NewClient(func(o *redis.Options) { o.PoolSize = 1 })
}

// contest has contenders take turns: each once a round, in another order each time.
func (s *stage) contest(names []string, open func(name string) locker, l load) {
	at := make(map[string]locker)
	for _, name := range names {
		at[name] = open(name)
		defer at[name].close()
		warm := l
		warm.length = 100 * time.Millisecond
		if l.key == nil {
			warm.key = func(int, int) string { return hotKey + ":warm:" + name }
		}
		warm.work(name, at[name])
	}
	for round := range s.rounds {
		for i := range names {
			name, l := names[(i+round)%len(names)], l
			if l.key == nil {
				// What a contender has left behind must keep out nobody, itself included.
				hot := fmt.Sprintf("%s:%s:%d", hotKey, name, round)
				l.key = func(int, int) string { return hot }
			}
			s.report.Turns = append(s.report.Turns, s.profiled(name, round, func() turn { return l.work(name, at[name]) }))
		}
	}
}

// profiled writes a CPU profile of the first turn of a contender when one is wanted.
func (s *stage) profiled(name string, round int, do func() turn) turn {
	if s.profile == "" || round != 1 {
		return do()
	}
	f, err := os.Create(filepath.Join(s.profile, s.report.Name+"-"+name+".pprof"))
	check(err)
	defer f.Close()
	check(pprof.StartCPUProfile(f))
	defer pprof.StopCPUProfile()
	return do()
}

// of returns the turns of a contender, round by round.
func (r *report) of(name string) (turns []turn) {
	for _, t := range r.Turns {
		if t.Peer == name {
			turns = append(turns, t)
		}
	}
	return turns
}

// ratio is the median over the rounds of get(a) / get(b).
func (r *report) ratio(a, b string, get func(turn) float64) float64 {
	as, bs := r.of(a), r.of(b)
	var all []float64
	for i := range min(len(as), len(bs)) {
		if over := get(bs[i]); over > 0 && as[i].Pairs > 0 {
			all = append(all, get(as[i])/over)
		}
	}
	return median(all)
}

// typical is the median over the rounds.
func (r *report) typical(name string, get func(turn) float64) float64 {
	var all []float64
	for _, t := range r.of(name) {
		if t.Pairs > 0 {
			all = append(all, get(t))
		}
	}
	return median(all)
}

// unmeasured stands where no turn has got anything done.
const unmeasured = -1

func median(all []float64) float64 {
	if len(all) == 0 {
		return unmeasured
	}
	all = slices.Sorted(slices.Values(all))
	if n := len(all); n%2 == 0 {
		return (all[n/2-1] + all[n/2]) / 2
	}
	return all[len(all)/2]
}

// cancellable is a contender that works under a context which can be cancelled.
type cancellable struct {
	locker
	ctx context.Context
}

func (c cancellable) lock(_ context.Context, key string) (any, error) {
	return c.locker.lock(c.ctx, key)
}

func (c cancellable) unlock(_ context.Context, key string, held any) error {
	return c.locker.unlock(c.ctx, key, held)
}
