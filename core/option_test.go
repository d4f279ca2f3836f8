package core_test

import (
	"strings"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
)

// Each option out of range names itself and its range, and nothing is sent.
func TestOptionsOutOfRange(t *testing.T) {
	for name, c := range map[string]struct {
		option core.Option
		rng    string
	}{
		"WithTTL short":    {core.WithTTL(9 * time.Millisecond), "10ms to 24h"},
		"WithTTL long":     {core.WithTTL(24*time.Hour + 1), "10ms to 24h"},
		"WithTTL overflow": {core.WithTTL(1<<63 - 1), "10ms to 24h"},
		"WithWait":         {core.WithWait(-1), "0 or more"},
		"WithMaxHold":      {core.WithMaxHold(0), "1ms or more"},
		"WithLimit none":   {core.WithLimit(0), "1 to 1048576"},
		"WithLimit large":  {core.WithLimit(1<<20 + 1), "1 to 1048576"},
		"WithLabel":        {core.WithLabel(strings.Repeat("x", 129)), "0 to 128 bytes"},
		"WithPrefix":       {core.WithPrefix("a latchkit~b"), "latchkit~"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newScripted()
			locks := newLocks(t, b)
			_, err := locks.Acquire(t.Context(), "k", c.option)
			wantErr(t, err, core.ErrInvalidOption)
			word, _, _ := strings.Cut(name, " ")
			if !strings.Contains(err.Error(), word) || !strings.Contains(err.Error(), c.rng) {
				t.Errorf("%q does not name %s and its range %q", err, word, c.rng)
			}
			if b.count(0) != 0 {
				t.Error("something was sent")
			}
			if _, err := core.New(core.Local(), c.option); err == nil {
				t.Error("New takes it")
			}
		})
	}
}

// What methods are given is checked like options, and the lease is as before.
func TestTimesOutOfRange(t *testing.T) {
	locks := newLocks(t, core.Local())
	lease := acquire(t, locks, "k")
	deadline := lease.Deadline()
	for _, d := range []time.Duration{-1, 24*time.Hour + 1, 1<<63 - 1} {
		wantErr(t, lease.Extend(t.Context(), d), core.ErrInvalidOption)
		wantErr(t, lease.ReleaseAfter(t.Context(), d), core.ErrInvalidOption)
		_, err := lease.Export([]byte("a secret that both ends know"), d)
		wantErr(t, err, core.ErrInvalidOption)
	}
	if !lease.Deadline().Equal(deadline) {
		t.Errorf("the deadline is %v, was %v", lease.Deadline(), deadline)
	}
	release(t, lease)
}

func TestOptionsAtTheirBounds(t *testing.T) {
	locks := newLocks(t, core.Local())
	for _, opt := range []core.Option{core.WithTTL(10 * time.Millisecond), core.WithTTL(24 * time.Hour),
		core.WithWait(0), core.WithWait(core.Forever), core.WithMaxHold(time.Millisecond), core.WithLimit(1),
		core.WithLimit(1 << 20), core.WithLabel(strings.Repeat("x", 128)), core.WithTracer(nil), nil} {
		lease, err := locks.Acquire(t.Context(), "k", opt)
		if err != nil {
			t.Error(err)
		}
		lease.Release(t.Context())
	}
	_, err := locks.Acquire(t.Context(), "k", core.WithShared(), core.WithLimit(2))
	wantErr(t, err, core.ErrInvalidOption)
}

func TestNewRefusesNil(t *testing.T) {
	_, err := core.New(nil)
	wantErr(t, err, core.ErrInvalidOption)
	_, err = core.New(core.Redis(nil))
	wantErr(t, err, core.ErrInvalidOption)
}
