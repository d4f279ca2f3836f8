package redistest_test

import (
	"testing"
	"time"

	"github.com/latchkit/latchkit/internal/redistest"
)

func TestSetClock(t *testing.T) {
	s := redistest.Start(t, redistest.WithFaketime("-1h"))
	rdb := s.Client()
	ahead := func() time.Duration { return time.Until(rdb.Time(bg(t)).Val()).Round(time.Minute) }
	if got := ahead(); got != -time.Hour {
		t.Errorf("started at %v, want -1h", got)
	}

	rdb.Set(bg(t), "key", "value", 30*time.Minute)
	s.SetClock("+0")
	if got := ahead(); got != 0 {
		t.Errorf("set right, and at %v", got)
	}
	if n := rdb.Exists(bg(t), "key").Val(); n != 0 {
		t.Error("a key of half an hour outlives a jump of an hour")
	}

	s.SetClock("+31s")
	s.Restart()
	if got := time.Until(s.Client().Time(bg(t)).Val()).Round(time.Second); got < 30*time.Second || got > 31*time.Second {
		t.Errorf("restarted at %v, want +31s", got)
	}
}

func TestClockAtAnotherSpeed(t *testing.T) {
	s := redistest.Start(t, redistest.WithFaketime("x0.5"))
	rdb := s.Client()
	start, began := rdb.Time(bg(t)).Val(), time.Now()
	time.Sleep(500 * time.Millisecond)
	least := time.Since(began)
	gone := rdb.Time(bg(t)).Val().Sub(start)
	if most := time.Since(began) * 3 / 4; gone < least/4 || gone > most {
		t.Errorf("%v have gone by of %v, want half", gone, time.Since(began))
	}
}
