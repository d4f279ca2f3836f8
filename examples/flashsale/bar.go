package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// bar shows progress on a terminal, and nothing anywhere else.
type bar struct {
	out   io.Writer // nil: nowhere
	name  string
	steps int

	mu    sync.Mutex
	done  int
	shown int // columns that are filled
}

const columns = 40

func newBar(out io.Writer, name string, steps int) *bar {
	if !isTerminal(out) {
		out = nil
	}
	return &bar{out: out, name: name, steps: steps, shown: -1}
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// step tells that one of the steps is done. It may be called by many goroutines at once.
func (b *bar) step() {
	if b.out == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done++
	if filled := b.done * columns / b.steps; filled > b.shown {
		b.shown = filled
		fmt.Fprintf(b.out, "\r%-10s [%s%s] %d/%d", b.name, strings.Repeat("#", filled), strings.Repeat(".", columns-filled), b.done, b.steps)
	}
}

// clear takes the bar off the terminal.
func (b *bar) clear() {
	if b.out != nil {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
}
