package core

import "time"

// clock tells the time for the paths that every lock takes. time.Now looks at two clocks, and that is much of what a
// hand-off costs; this one looks at the monotonic one alone. What it says is for comparing within the engine: the rest of a
// Time is that of the start with what has passed since, and goes to a user, or out with a trip, only as restated says.
//
// Each engine has its own, so that one inside a testing/synctest bubble stays inside.
type clock struct{ start time.Time }

func (c clock) now() time.Time { return c.start.Add(time.Since(c.start)) }

// restated is t as the clock on the wall has it, which may have been set since the engine began.
func restated(t time.Time) time.Time {
	now := time.Now()
	return now.Add(t.Sub(now))
}
