package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"
)

const hotKey = "bench:hot"

// waiting are the contenders that can wait for a lock.
var waiting = []string{oursName, redislockName, redsyncName, rueidisName}

// hot: 64 goroutines of one process, one key.
func hot(s *stage) {
	addr, counting := s.redis()
	s.contest(waiting, func(name string) locker {
		return peers[name].open(place{addr: addr, goroutines: 64, waits: true})
	}, load{goroutines: 64, length: 700 * time.Millisecond, timed: true, servers: servers(counting)})
	best := s.report.best(waiting[1:])
	ours := &s.report
	s.atLeast("best peer ("+best+") / latchkit", ours.ratio(best, oursName, turn.perPair), "×", 100)
	mean := ours.typical(oursName, turn.perPair) * 64 / 1000
	s.atMost("p99 of waits", ours.typical(oursName, turn.p99), "ms", max(4*mean, 1))
}

const (
	crowdProcesses  = 4
	crowdGoroutines = 8
	crowdLength     = 3 * time.Second
)

// crowd: 4 processes of 8 goroutines, one key.
func crowd(s *stage) {
	addr, counting := s.redis()
	rounds := min(s.rounds, 3)
	shares := []float64{}
	for round := range rounds {
		for i := range waiting {
			name := waiting[(i+round)%len(waiting)]
			before := ask(counting)
			together := s.gather(name, addr, fmt.Sprintf("%s:%s:%d", hotKey, name, round), crowdProcesses, crowdGoroutines, crowdLength)
			told := ask(counting).since(before)
			t := turn{Peer: name, Elapsed: crowdLength}
			for _, one := range together {
				t.Pairs += one.Pairs
				t.Errors += one.Errors
				t.Stuck += one.Stuck
				t.P50, t.P99, t.Longest = max(t.P50, one.P50), max(t.P99, one.P99), max(t.Longest, one.Longest)
				t.Client += one.Client * float64(one.Pairs)
			}
			if n := float64(t.Pairs); n > 0 {
				t.Client /= n
				t.Server, t.Calls, t.Scripts, t.Usec = float64(told.cpu.Microseconds())/n, told.calls/n, told.scripts/n, told.usec/n
				t.In, t.Out = told.in/n, told.out/n
			}
			if name == oursName {
				for _, one := range together {
					shares = append(shares, 100*float64(one.Pairs)/float64(t.Pairs))
				}
			}
			s.report.Turns = append(s.report.Turns, t)
		}
	}
	best := s.report.best(waiting[1:])
	s.atLeast("grants / best peer's ("+best+")", s.report.ratio(best, oursName, turn.perPair), "×", 30)
	s.atMost("longest wait", s.report.typical(oursName, turn.longest), "ms", 100)
	slices.Sort(shares)
	s.atMost("a process's share of the grants, furthest from 25 %", max(25-shares[0], shares[len(shares)-1]-25), "%", 7)
	s.fact("shares of latchkit's processes: %.1f", shares)
}

// best is the contender with the most pairs in its time.
func (r *report) best(names []string) string {
	best := names[0]
	for _, name := range names {
		if p := r.typical(name, turn.perPair); p > 0 && p < r.typical(best, turn.perPair) {
			best = name
		}
	}
	return best
}

// gather runs processes of a contender at the same time, and returns what each did. One that does not come back in time
// is ended, and did nothing that could be counted.
func (s *stage) gather(name, addr, key string, processes, goroutines int, length time.Duration) []turn {
	members := make([]*member, processes)
	for i := range members {
		members[i] = s.member("crowd", name, addr, key, strconv.Itoa(goroutines), length.String())
	}
	for _, m := range members {
		m.awaitReady()
	}
	for _, m := range members {
		m.start()
	}
	turns := make([]turn, processes)
	limit := time.Now().Add(length + length/2 + 2*grace + 2*time.Second)
	for i, m := range members {
		m.finish(limit, &turns[i])
	}
	return turns
}

// member is another process of this program, which plays a part.
type member struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	end chan []byte
}

func (s *stage) member(part string, args ...string) *member {
	cmd := exec.Command(os.Args[0], append([]string{"-part", part}, args...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	check(err)
	out, err := cmd.StdoutPipe()
	check(err)
	check(cmd.Start())
	return &member{cmd: cmd, in: in, out: bufio.NewReader(out), end: make(chan []byte, 1)}
}

func (m *member) awaitReady() {
	_, err := m.out.ReadString('\n')
	check(err)
}

func (m *member) start() {
	_, err := fmt.Fprintln(m.in)
	check(err)
}

// finish reads the member's result into to, and ends it at limit if it has not come to its end.
func (m *member) finish(limit time.Time, to any) bool {
	go func() {
		text, _ := io.ReadAll(m.out)
		m.end <- text
	}()
	defer func() { _ = m.cmd.Wait() }()
	select {
	case text := <-m.end:
		return json.Unmarshal(text, to) == nil
	case <-time.After(time.Until(limit)):
		_ = m.cmd.Process.Kill()
		return false
	}
}

// playCrowd is what a member of a crowd does: ready, on the word, and out with the result.
func playCrowd(args []string) any {
	name, addr, key := args[0], args[1], args[2]
	goroutines, err := strconv.Atoi(args[3])
	check(err)
	length, err := time.ParseDuration(args[4])
	check(err)
	at := peers[name].open(place{addr: addr, goroutines: goroutines, waits: true})
	warm := load{goroutines: 1, length: 50 * time.Millisecond, timed: true, key: func(int, int) string { return "bench:warm:" + strconv.Itoa(os.Getpid()) }}
	warm.work(name, at)
	awaitWord()
	l := load{goroutines: goroutines, length: length, timed: true, key: func(int, int) string { return key }}
	return l.work(name, at)
}

func awaitWord() {
	fmt.Println("ready")
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	check(err)
}
