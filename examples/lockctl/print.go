package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/plain"
)

// entry is a lock for programs.
type entry struct {
	Key       string   `json:"key"`
	Held      bool     `json:"held"`
	Completed bool     `json:"completed"`
	Foreign   bool     `json:"foreign"`
	Kind      string   `json:"kind"`
	Waiters   int      `json:"waiters"` // engines that wait; -1: not known
	Holders   []holder `json:"holders"`
}

type holder struct {
	Label     string     `json:"label"`
	Since     *time.Time `json:"since,omitempty"`
	Remaining float64    `json:"remaining"`
	Fence     int64      `json:"fence,omitempty"`
	Count     int        `json:"count"`
}

func describe(info core.Info) entry {
	e := entry{Key: info.Key, Held: info.Held, Completed: info.Completed, Foreign: info.Foreign, Kind: info.Kind.String(),
		Waiters: info.Waiters, Holders: []holder{}}
	for _, h := range info.Holders {
		shown := holder{Label: h.Label, Remaining: h.Remaining.Seconds(), Fence: h.Fence, Count: h.Count}
		if !h.Since.IsZero() {
			shown.Since = &h.Since
		}
		e.Holders = append(e.Holders, shown)
	}
	return e
}

// printLocks prints a table; the first most rows of it if most is above 0.
func printLocks(out io.Writer, all []core.Info, most int) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(out, "no locks")
		return err
	}
	rows := [][]string{{"KEY", "KIND", "HOLDER", "AGE", "LEFT", "FENCE", "WAIT"}}
	for _, info := range all {
		rows = append(rows, row(info))
	}
	left := 0
	if most > 0 && len(all) > most {
		left = len(all) - most
		rows = rows[:most+1]
	}
	width, _ := terminalSize()
	if err := printTable(out, rows, width); err != nil || left == 0 {
		return err
	}
	_, err := fmt.Fprintf(out, "… and %d more\n", left)
	return err
}

func row(info core.Info) []string {
	kind := info.Kind.String()
	if info.Completed {
		kind = "cooldown"
	}
	var first core.Holder
	label := ""
	if len(info.Holders) > 0 {
		first = info.Holders[0]
		label = plain.Text(first.Label, 0)
	}
	if more := len(info.Holders) - 1; more > 0 {
		label += fmt.Sprintf(" +%d", more)
	}
	return []string{plain.Text(info.Key, 0), kind, label, age(first), plain.Duration(first.Remaining), fence(first), waiters(info)}
}

func age(h core.Holder) string {
	if h.Since.IsZero() {
		return "?"
	}
	return plain.Duration(max(0, time.Since(h.Since)))
}

func fence(h core.Holder) string {
	if h.Fence == 0 {
		return "-"
	}
	return strconv.FormatInt(h.Fence, 10)
}

func waiters(info core.Info) string {
	if info.Waiters < 0 {
		return "?"
	}
	return strconv.Itoa(info.Waiters)
}

// printLock prints all that is known about one key.
func printLock(out io.Writer, info core.Info) error {
	state := "free"
	switch {
	case info.Foreign:
		state = "held by another library"
	case info.Completed:
		state = "nobody holds it; kept after a success (cooldown)"
	case info.Held:
		state = "held, " + info.Kind.String()
	}
	fmt.Fprintf(out, "key      %s\nstate    %s\nwaiting  %s\n", plain.Text(info.Key, 0), state, waiters(info))
	for _, h := range info.Holders {
		fmt.Fprintf(out, "\nholder   %s\nsince    %s\nleft     %s\nfence    %s\n",
			cmp.Or(plain.Text(h.Label, 0), "?"), since(h), plain.Duration(h.Remaining), fence(h))
		if h.Count > 1 {
			fmt.Fprintf(out, "count    %d processes\n", h.Count)
		}
	}
	return nil
}

func since(h core.Holder) string {
	if h.Since.IsZero() {
		return "?"
	}
	return h.Since.Local().Format(time.DateTime) + " (" + age(h) + ")"
}

// printTable prints rows that are no wider than width, as far as that goes: first keys are cut, then holders.
func printTable(out io.Writer, rows [][]string, width int) error {
	const gap, shortest = 2, 12
	widths := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, cell := range r {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	total := gap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for _, column := range []int{0, 2} {
		spare := max(0, min(total-width, widths[column]-shortest))
		widths[column] -= spare
		total -= spare
	}
	for _, r := range rows {
		var line strings.Builder
		for i, cell := range r {
			cell = shorten(cell, widths[i])
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i >= 3 { // numbers
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
			line.WriteString(strings.Repeat(" ", gap))
		}
		if _, err := fmt.Fprintln(out, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// shorten cuts text in the middle: how a key begins and ends tells most.
func shorten(text string, length int) string {
	runes := []rune(text)
	if len(runes) <= length {
		return text
	}
	head := length / 2
	return string(runes[:head]) + "…" + string(runes[len(runes)-(length-head-1):])
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// terminalSize asks stty, which knows the terminal on every Unix; 100 columns and 30 rows where there is none.
func terminalSize() (width, height int) {
	stty := exec.Command("stty", "size")
	stty.Stdin = os.Stdin
	text, err := stty.Output()
	if _, scanned := fmt.Sscan(string(text), &height, &width); err != nil || scanned != nil || width < 1 {
		return 100, 30
	}
	return width, height
}
