// Scheduler: three processes, of which one at a time runs the jobs. The program kills it, and another takes over.
//
//	go run ./examples/scheduler                        on a Redis inside the program
//	go run ./examples/scheduler -redis localhost:6379  on a real one
package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/latchkit/latchkit/internal/demo"
)

const (
	ttl     = 2 * time.Second        // for how long a leader that died is waited for
	rest    = 200 * time.Millisecond // between jobs
	enough  = 5                      // jobs of each leader
	patient = time.Minute            // for the whole show
)

func main() {
	demo.Child(standBy)
	demo.Main(run)
}

func run(ctx context.Context, out io.Writer, redisAddr string) error {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	crew, err := hire(redisAddr, "anna", "ben", "cleo")
	defer crew.dismiss()
	if err != nil {
		return err
	}
	s := &show{out: out, began: time.Now(), events: crew.events, jobs: map[string]int{}}
	return s.play(ctx, crew)
}

// show is what has been seen so far.
type show struct {
	out    io.Writer
	began  time.Time
	events <-chan event

	leader string
	since  time.Time
	fence  int64
	last   int64          // the last job's number
	jobs   map[string]int // how many each has run
	broken error          // a promise that was not kept
}

// play lets one lead, kills it, and lets the next lead.
func (s *show) play(ctx context.Context, crew *crew) error {
	if err := s.watch(ctx, func() bool { return s.jobs[s.leader] >= enough }); err != nil {
		return err
	}
	victim, killed := s.leader, time.Now()
	s.say("kill -9 of %s, who leads", victim)
	crew.kill(victim)
	if err := s.watch(ctx, func() bool { return s.leader != victim && s.jobs[s.leader] >= enough }); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "\n%s took over %.2fs after %s was killed (TTL %v); %d jobs, each run once\n",
		s.leader, s.since.Sub(killed).Seconds(), victim, ttl, s.last)
	return nil
}

// watch takes what the workers tell until enough is seen.
func (s *show) watch(ctx context.Context, seen func() bool) error {
	for !seen() {
		select {
		case e := <-s.events:
			s.take(e)
		case <-ctx.Done():
			return fmt.Errorf("nothing more to see: %w", ctx.Err())
		}
		if s.broken != nil {
			return s.broken
		}
	}
	return nil
}

func (s *show) take(e event) {
	switch e.what {
	case "leads":
		if e.number <= s.fence {
			s.broken = fmt.Errorf("%s leads with fence %d after %d", e.who, e.number, s.fence)
		}
		s.leader, s.since, s.fence = e.who, e.at, e.number
		s.say("%s leads, with fence %d", e.who, e.number)
	case "job":
		if e.who != s.leader || e.number <= s.last {
			s.broken = fmt.Errorf("%s ran job %d while %s leads, after job %d", e.who, e.number, s.leader, s.last)
		}
		s.last = e.number
		s.jobs[e.who]++
		s.say("%s runs job %d", e.who, e.number)
	default:
		s.broken = fmt.Errorf("%s: %s", e.who, e.what)
	}
}

func (s *show) say(format string, args ...any) {
	fmt.Fprintf(s.out, "%6.2fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}
