package main

import (
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"
)

func servers(all ...*redis.Client) []*redis.Client { return all }

func (t turn) allocs() float64    { return t.Allocs }
func (t turn) p50() float64       { return ms(t.P50) }
func (t turn) p99() float64       { return ms(t.P99) }
func (t turn) longest() float64   { return ms(t.Longest) }
func (t turn) clientCPU() float64 { return t.Client }
func (t turn) serverCPU() float64 { return t.Server }
func (t turn) pairP50() float64   { return ms(t.PairP50) }

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

const columns = "%-22s %9s %7s  %6s %7s  %7s %6s  %6s %7s %7s  %7s %7s %7s  %8s %8s %8s  %s\n"

func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %s\n", r.Name, r.Title)
	if len(r.Turns) > 0 {
		fmt.Fprintf(w, columns, "", "µs/pair", "×ours", "allocs", "bytes", "scripts", "calls", "in B", "out B", "", "client", "server", "script", "p50 ms", "p99 ms", "max ms", "goroutines, stuck, errors")
	}
	for _, name := range r.names() {
		get := func(f func(turn) float64) float64 { return r.typical(name, f) }
		wait := func(f func(turn) float64) string {
			if v := get(f); v > 0 {
				return fmt.Sprintf("%.3f", v)
			}
			return "-"
		}
		fmt.Fprintf(w, columns, name,
			fmt.Sprintf("%.2f", get(turn.perPair)),
			fmt.Sprintf("%.2f", r.ratio(name, oursName, turn.perPair)),
			fmt.Sprintf("%.1f", get(turn.allocs)),
			fmt.Sprintf("%.0f", get(func(t turn) float64 { return t.Bytes })),
			fmt.Sprintf("%.3f", get(func(t turn) float64 { return t.Scripts })),
			fmt.Sprintf("%.2f", get(func(t turn) float64 { return t.Calls })),
			fmt.Sprintf("%.0f", get(func(t turn) float64 { return t.In })),
			fmt.Sprintf("%.0f", get(func(t turn) float64 { return t.Out })),
			"µs CPU:",
			fmt.Sprintf("%.2f", get(func(t turn) float64 { return t.Client })),
			fmt.Sprintf("%.2f", get(func(t turn) float64 { return t.Server })),
			fmt.Sprintf("%.2f", get(func(t turn) float64 { return t.Usec })),
			wait(turn.p50), wait(turn.p99), wait(turn.longest),
			fmt.Sprintf("%.0f, %.0f, %.0f", get(func(t turn) float64 { return float64(t.Goroutines) }),
				r.sum(name, func(t turn) float64 { return float64(t.Stuck) }), r.sum(name, func(t turn) float64 { return float64(t.Errors) })))
	}
	for _, f := range r.Facts {
		fmt.Fprintf(w, "  %s\n", f)
	}
	for _, v := range r.Verdicts {
		sign, word := "≥", "met"
		if v.AtMost {
			sign = "≤"
		}
		if !v.met() {
			word = "MISSED"
		}
		fmt.Fprintf(w, "  %-7s %s: %.3g %s (%s %.3g)\n", word, v.What, v.Got, v.Unit, sign, v.Limit)
	}
}

func (r *report) sum(name string, get func(turn) float64) (sum float64) {
	for _, t := range r.of(name) {
		sum += get(t)
	}
	return sum
}

// names are the contenders in the order in which they first came.
func (r *report) names() (names []string) {
	seen := map[string]bool{}
	for _, t := range r.Turns {
		if !seen[t.Peer] {
			seen[t.Peer] = true
			names = append(names, t.Peer)
		}
	}
	return names
}

// lines writes every turn as benchstat reads it.
func (r *report) lines(w io.Writer) {
	for _, t := range r.Turns {
		if t.Pairs == 0 {
			continue
		}
		fmt.Fprintf(w, "Benchmark%s/peer=%s %d %.1f ns/op %.0f B/op %.1f allocs/op %.3f scripts/op %.3f calls/op %.0f in-B/op %.0f out-B/op %.3f client-µs/op %.3f server-µs/op",
			r.Name, t.Peer, t.Pairs, t.perPair()*1000, t.Bytes, t.Allocs, t.Scripts, t.Calls, t.In, t.Out, t.Client, t.Server)
		if t.Longest > 0 {
			fmt.Fprintf(w, " %.4f p50-ms %.4f p99-ms %.4f max-ms", ms(t.P50), ms(t.P99), ms(t.Longest))
		}
		fmt.Fprintln(w)
	}
}
