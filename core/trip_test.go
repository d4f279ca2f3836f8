package core

import (
	"context"
	"testing"
	"time"
	"unsafe"
)

// afterTheWallWasSet is t as a clock tells it that was started before the clock on the wall was set by -d, in whole seconds:
// the monotonic reading is right, and the rest is off by d.
func afterTheWallWasSet(t time.Time, d time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += uint64(d/time.Second) << 30 // where package time keeps the seconds
	return t
}

// A trip ends in time for who compares its deadline by the wall, too: a caller whose deadline has no monotonic reading, and
// go-redis.
func TestATripsLimitWhereTheWallWasSet(t *testing.T) {
	for name, c := range map[string]struct{ off, caller, want time.Duration }{
		"back":             {time.Hour, time.Minute, tripLimit},
		"back, impatient":  {time.Hour, time.Second, time.Second},
		"ahead":            {-time.Hour, time.Minute, tripLimit},
		"ahead, impatient": {-time.Hour, time.Second, time.Second},
		"not set":          {0, time.Minute, tripLimit},
		"back, no caller":  {time.Hour, 0, tripLimit},
		"ahead, no caller": {-time.Hour, 0, tripLimit},
	} {
		now := time.Now()
		limit := afterTheWallWasSet(now, c.off).Add(tripLimit)
		if limit.Sub(now) != tripLimit || limit.Round(0).Sub(now.Round(0)) != tripLimit+c.off {
			t.Fatalf("%s: package time has changed: %v", name, limit)
		}
		var caller context.Context
		if c.caller > 0 {
			ctx, cancel := context.WithDeadline(t.Context(), now.Add(c.caller).Round(0))
			defer cancel()
			caller = ctx
		}
		alarms := alarmClock{start: now}
		d, _ := alarms.newTrip(t.Context(), caller, limit).Deadline()
		for by, took := range map[string]time.Duration{"by the wall": d.Round(0).Sub(now.Round(0)), "by the clock": d.Sub(now)} {
			if (took - c.want).Abs() > 100*time.Millisecond {
				t.Errorf("%s: the trip may take %v %s, want %v", name, took, by, c.want)
			}
		}
	}
}
