package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

var scenarios = []scenario{
	{name: "one", title: "one goroutine, a free key each time; client and server pinned to one CPU", pinned: true, limit: time.Minute, run: one},
	{name: "many", title: "128 goroutines, each with a key of its own", limit: time.Minute, run: many},
	{name: "hot", title: "64 goroutines of one process, one key", limit: 2 * time.Minute, run: hot},
	{name: "crowd", title: "4 processes of 8 goroutines, one key", limit: 4 * time.Minute, run: crowd},
	{name: "pass", title: "from one engine's release to the next one's acquire", limit: time.Minute, run: pass},
	{name: "refused", title: "a duplicate is turned away", limit: time.Minute, run: refused},
	{name: "leases", title: "10,000 leases are held", limit: time.Minute, run: leases},
	{name: "idle", title: "1,000 callers wait for keys that another process holds", limit: time.Minute, run: idle},
	{name: "redlock", title: "a majority of 5 servers, one goroutine", limit: 2 * time.Minute, run: redlock},
	{name: "middleware", title: "one goroutine, one request after the other; client and server pinned to one CPU", pinned: true, limit: 2 * time.Minute, run: middleware},
	{name: "growth", title: "latchkit alone: goroutines with a key each, 1,000 goroutines over so many keys, 256 goroutines on a Cluster", limit: 2 * time.Minute, run: growth},
	{name: "long", title: "100,000 leases for 5 minutes", limit: 7 * time.Minute, long: true, run: long},
}

// parts are what other processes of a scenario do.
var parts = map[string]func(args []string) any{"crowd": playCrowd, "idle": playIdle}

func main() {
	only := flag.String("only", "", "scenarios to run, separated by commas; all but the long ones if empty")
	rounds := flag.Int("rounds", 7, "how often each contender has its turn")
	profile := flag.String("profile", "", "folder for a CPU profile of each contender in each scenario")
	results := flag.String("results", "results", "folder for the table and for what benchstat reads")
	scene := flag.String("scenario", "", "for this program's own processes")
	part := flag.String("part", "", "for this program's own processes")
	flag.Parse()
	switch {
	case *part != "":
		hand(os.Stdout, parts[*part](flag.Args()))
	case *scene != "":
		perform(*scene, *rounds, *profile)
	default:
		direct(*only, *rounds, *profile, *results)
	}
}

func hand(w io.Writer, what any) { check(json.NewEncoder(w).Encode(what)) }

// perform runs one scenario in this process, and hands its report to the one that started it.
func perform(name string, rounds int, profile string) {
	for _, sc := range scenarios {
		if sc.name == name {
			s := &stage{host: newHost(), rounds: rounds, profile: profile, report: report{Name: sc.name, Title: sc.title}}
			sc.run(s)
			s.close()
			hand(os.Stdout, s.report)
		}
	}
}

// direct runs the scenarios one after the other and prints the table.
func direct(only string, rounds int, profile, results string) {
	check(os.MkdirAll(results, 0o755))
	if profile != "" {
		check(os.MkdirAll(profile, 0o755))
	}
	table, err := os.Create(filepath.Join(results, "table.txt"))
	check(err)
	lines, err := os.Create(filepath.Join(results, "bench.txt"))
	check(err)
	out := io.MultiWriter(os.Stdout, table)
	began := time.Now()
	printSettings(out)
	for _, sc := range scenarios {
		if !wanted(sc, only) {
			continue
		}
		r, err := stageIn(sc, rounds, profile)
		if err != nil {
			fmt.Fprintf(out, "\n%s: %v\n", sc.name, err)
			continue
		}
		r.print(out)
		r.lines(lines)
	}
	fmt.Fprintf(out, "\n%.0f s in all\n", time.Since(began).Seconds())
	check(table.Close())
	check(lines.Close())
}

func wanted(sc scenario, only string) bool {
	if only == "" {
		return !sc.long
	}
	for _, name := range strings.Split(only, ",") {
		if name == sc.name {
			return true
		}
	}
	return false
}

// stageIn runs sc in a process of its own.
func stageIn(sc scenario, rounds int, profile string) (r report, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), sc.limit)
	defer cancel()
	args := []string{os.Args[0], "-scenario", sc.name, "-rounds", strconv.Itoa(rounds), "-profile", profile}
	if sc.pinned {
		args = append([]string{"taskset", "-c", "0"}, args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, &r)
}
