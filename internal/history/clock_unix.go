//go:build unix

package history

import "golang.org/x/sys/unix"

// Now is this machine's monotonic clock in nanoseconds: one for all its processes, which goes on while one is stopped
// and which nobody sets. It is the clock that Go's own monotonic times are read from.
func Now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic("history: no monotonic clock: " + err.Error())
	}
	return t.Nano()
}
