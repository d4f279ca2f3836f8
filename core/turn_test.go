package core_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// Of the engines that wait, a release names the one that has waited longest. One that does not come then, for it may be
// dead, is named no more.
func TestAReleaseNamesWhoseTurnItIs(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	b := core.Redis(rdb)
	engine := func(digit string) string { return strings.Repeat(digit, 16) }
	other := &core.Op{Action: core.Try, Hold: core.Hold{Key: "of another kind", Kind: core.Shared, TTL: time.Minute}, Owner: engine("9") + engine("9"), Fences: 1}
	do := func(a core.Action, digit string, beside ...*core.Op) *core.Op {
		t.Helper()
		op := &core.Op{Action: a, Hold: core.Hold{Key: "k", TTL: time.Minute}, Owner: engine(digit) + engine(digit),
			Waiter: engine(digit), Waiting: true, Fences: 1}
		b.Do(t.Context(), append(beside, op))
		if op.Err != nil {
			t.Fatal(op.Err)
		}
		return op
	}
	words := make(chan [2]string, 10)
	stop, err := b.(core.Watcher).Watch(t.Context(), "k", func(by, next string) { words <- [2]string{by, next} })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	told := func(by, next string) {
		t.Helper()
		select {
		case word := <-words:
			if want := [2]string{engine(by), engine(next)}; word != want {
				t.Errorf("told %q, want %q", word, want)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("a release is not told")
		}
	}
	do(core.Try, "a")
	for _, digit := range []string{"b", "c", "d", "b"} { // asking again is no arrival
		if op := do(core.Try, digit); op.Verdict != core.Refused {
			t.Fatalf("verdict %v, want Refused", op.Verdict)
		}
	}
	// Nor is it when b has waited for so long that it does not count for much longer.
	short := redis.Z{Score: float64(time.Now().Add(time.Second).UnixMilli()), Member: engine("b")}
	must(t, rdb.ZAdd(t.Context(), "latchkit~wait:{k}", short).Err())
	do(core.Try, "b")
	if score := rdb.ZScore(t.Context(), "latchkit~wait:{k}", engine("b")).Val(); score < short.Score+2000 {
		t.Errorf("it counts for %v ms more", score-short.Score)
	}
	do(core.Try, "b", other) // nor is it in a batch with other kinds
	do(core.Release, "a")
	told("a", "b")
	do(core.Try, "b")
	if err := rdb.ZScore(t.Context(), "latchkit~wait:{k}", engine("b")).Err(); err != redis.Nil {
		t.Errorf("b counts among those that wait for what it holds: %v", err)
	}
	do(core.Try, "a") // behind c and d
	do(core.Release, "b")
	told("b", "c")
	eventually(t, 5*time.Second, "c, which is silent, counts no more", func() bool {
		do(core.Try, "e")
		do(core.Try, "f") // somebody waits
		do(core.Release, "e")
		select {
		case word := <-words:
			return word == [2]string{engine("e"), engine("d")}
		case <-time.After(5 * time.Second):
			return false
		}
	})
}

// turning is a Backend whose releases are told by the test.
type turning struct {
	whole
	wakes chan func(by, next string)
}

func (b turning) Watch(_ context.Context, _ string, wake func(by, next string)) (func(), error) {
	b.wakes <- wake
	return func() {}, nil
}

// Who is told that it is another's turn holds back for a moment, and no longer; who is told that it is its own does not, nor
// who stands in line.
func TestWaitersHoldBackWhenItIsAnothersTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := turning{whole{newScripted()}, make(chan func(by, next string), 1)}
		elsewhere, locks := newLocks(t, b), newLocks(t, b)
		engine := make(chan string, 10)
		b.set(nil, func(op *core.Op) {
			if op.Action == core.Try && op.Waiter != "" {
				engine <- op.Waiter
			}
		})
		for _, turn := range []struct {
			own         bool
			least, most time.Duration
			options     []core.Option
		}{
			{own: true},
			{least: 4 * time.Millisecond, most: 8 * time.Millisecond},
			{options: []core.Option{core.WithFair()}},
		} {
			lease := acquire(t, elsewhere, "k")
			got := make(chan *core.Lease)
			go func() { got <- acquire(t, locks, "k", append(turn.options, core.WithWait(time.Minute))...) }()
			wake := <-b.wakes
			synctest.Wait()
			next := "another"
			if own := <-engine; turn.own {
				next = own
			}
			release(t, lease)
			began := time.Now()
			wake("somebody", next)
			served := <-got
			if took := time.Since(began); took < turn.least || took > turn.most {
				t.Errorf("served after %v, want %v to %v", took, turn.least, turn.most)
			}
			release(t, served)
			for len(engine) > 0 {
				<-engine
			}
			time.Sleep(time.Second)
		}
	})
}
