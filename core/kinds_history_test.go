package core_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/history"
	"github.com/latchkit/latchkit/internal/redistest"
)

// kindsTTL bounds how long a killed process keeps the others waiting.
const kindsTTL = 400 * time.Millisecond

// chores are what each client does in turn, at random: one for each kind of hold.
var chores = []history.Request{
	{Key: "document", Kind: core.Shared},
	{Key: "document", Kind: core.Shared},
	{Key: "document"},
	{Key: "permits", Kind: core.Limited, Limit: 3},
	{Key: "line", Fair: true},
	{Key: "pool", Kind: core.Limited, Limit: 2, Fair: true},
	{Key: "both"},    // with all of bothKeys
	{Key: "leader"},  // by Lead
	{Key: "carried"}, // and given to another engine
}

// scenes are what the clients do, and for how long they hold what they have.
var scenes = map[string]struct {
	chores []history.Request
	work   time.Duration
	life   time.Duration // of a process, at least
}{
	"kinds": {chores, 8 * time.Millisecond, 300 * time.Millisecond},
	// So long that all stand in line.
	"line": {[]history.Request{{Key: "line", Fair: true}}, 80 * time.Millisecond, 1500 * time.Millisecond},
}

var bothKeys = []string{"both", "one of both"}

// Eight clients in four processes, two of which are killed again and again, hold every kind; what they saw is judged.
func TestKindsUnderRandomKills(t *testing.T) {
	for scene := range scenes {
		t.Run(scene, func(t *testing.T) { underRandomKills(t, scene) })
	}
}

func underRandomKills(t *testing.T, scene string) {
	server := redistest.Start(t)
	dir := t.TempDir()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var paths []string
	path := func(name string) string {
		mu.Lock()
		defer mu.Unlock()
		p := filepath.Join(dir, fmt.Sprintf("%s-%d", name, len(paths)))
		paths = append(paths, p)
		return p
	}
	for range 2 { // two engines in this process stand for two that nobody kills
		wg.Go(func() { keepBusy(t, ctx, server.Client(), scene, path("steady")) })
	}
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := killedProcess(ctx, server.Addr(), scene, path("killed")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var holds []*history.Hold
	read := func() bool {
		mu.Lock()
		defer mu.Unlock()
		written := slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return !exists(p) })
		var err error
		if holds, err = history.Read(written...); err != nil {
			t.Fatal(err)
		}
		return enough(scene, holds)
	}
	time.Sleep(6 * time.Second)
	eventually(t, 30*time.Second, "enough to judge", read)
	cancel()
	wg.Wait()
	read()
	var line []*history.Hold
	for _, h := range holds {
		if h.Key == "line" {
			line = append(line, h)
		}
	}
	t.Logf("%d processes, %d holds", len(paths), len(holds))
	broken := history.Overlaps(holds)
	broken = append(broken, history.Fences(holds, true)...)
	broken = append(broken, history.Order(line, core.Heartbeat-2*time.Millisecond)...)
	for _, v := range broken {
		t.Error(v)
	}
	noCompanionWithoutTTL(t, server.Client())
}

// enough tells whether each chore was done so often that it can be judged.
func enough(scene string, holds []*history.Hold) bool {
	granted := map[history.Request]int{}
	for _, h := range holds {
		if h.Granted() {
			granted[h.Request]++
		}
	}
	return !slices.ContainsFunc(scenes[scene].chores, func(chore history.Request) bool { return granted[chore] < 10 })
}

// noCompanionWithoutTTL looks at every key of the server: those of the locks end by themselves.
func noCompanionWithoutTTL(t *testing.T, rdb *redis.Client) {
	t.Helper()
	keys, err := rdb.Keys(context.Background(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if ttl := rdb.PTTL(context.Background(), key).Val(); ttl < 0 && ttl != -2 && !strings.HasPrefix(key, "latchkit~fence") {
			t.Errorf("%q has no TTL", key)
		}
	}
}

// killedProcess runs a process of two clients, and kills it when it has worked for a while.
func killedProcess(ctx context.Context, addr, scene, path string) error {
	limited, kill := context.WithCancel(ctx)
	defer kill()
	cmd := exec.CommandContext(limited, os.Args[0], "-test.run=^TestChildHoldsEveryKind$")
	cmd.Env = append(os.Environ(), "LATCHKIT_KINDS="+addr+" "+scene+" "+path)
	go func() {
		for limited.Err() == nil && !exists(path) {
			time.Sleep(5 * time.Millisecond)
		}
		time.AfterFunc(scenes[scene].life+rand.N(time.Second), kill)
	}()
	out, err := cmd.CombinedOutput()
	if limited.Err() == nil {
		return fmt.Errorf("the process ended by itself: %w\n%s", err, out)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestChildHoldsEveryKind is such a process; by itself it has nothing to do.
func TestChildHoldsEveryKind(t *testing.T) {
	args := strings.Fields(os.Getenv("LATCHKIT_KINDS"))
	if len(args) != 3 {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // should its parent die
	defer cancel()
	keepBusy(t, ctx, redis.NewClient(&redis.Options{Addr: args[0]}), args[1], args[2])
}

// keepBusy runs two clients over one engine until ctx ends.
func keepBusy(t *testing.T, ctx context.Context, rdb *redis.Client, scene, path string) {
	recorder, err := history.Create(path, filepath.Base(path))
	if err != nil {
		t.Error(err)
		return
	}
	line := newWitness(core.Redis(rdb))
	locks := newLocks(t, line, core.WithTTL(kindsTTL))
	other := newLocks(t, core.Redis(rdb), core.WithTTL(kindsTTL))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				chores := scenes[scene].chores
				switch chore := chores[rand.N(len(chores))]; chore.Key {
				case "both":
					holdBoth(t, ctx, locks, recorder)
				case "leader":
					leadOnce(ctx, locks, recorder)
				case "carried":
					carryOver(t, ctx, locks, other, recorder)
				default:
					holdOne(t, ctx, locks, line, recorder, chore, scenes[scene].work)
				}
			}
		})
	}
	wg.Wait()
	if err := recorder.Close(); err != nil {
		t.Error(err)
	}
}

func holdOne(t *testing.T, ctx context.Context, l core.Locker, line *witness, recorder *history.Recorder,
	chore history.Request, work time.Duration) {
	opts := []core.Option{core.WithWait(2 * time.Second)}
	switch chore.Kind {
	case core.Shared:
		opts = append(opts, core.WithShared())
	case core.Limited:
		opts = append(opts, core.WithLimit(chore.Limit))
	}
	entry := recorder.Ask(chore)
	if chore.Fair {
		waiting, gone := line.sees(entry)
		defer gone()
		opts = append(opts, core.WithFair(), waiting)
	}
	lease, err := l.Acquire(ctx, chore.Key, opts...)
	if err != nil {
		entry.Refused(err)
		return
	}
	entry.Got(lease)
	time.Sleep(rand.N(work))
	entry.Releasing()
	err = lease.Release(ctx)
	entry.Released(err)
	wantKept(t, ctx, chore.Key, err)
}

// witness is a Backend that records what the store hears of fair waiters.
type witness struct {
	core.Backend
	core.Watcher
	core.Supporter
	core.Gatherer
	core.Closer
	asked   atomic.Int64
	waiting sync.Map // by label
}

func newWitness(b core.Backend) *witness {
	return &witness{Backend: b, Watcher: b.(core.Watcher), Supporter: b.(core.Supporter), Gatherer: b.(core.Gatherer),
		Closer: b.(core.Closer)}
}

// sees returns the option by which the waiter of entry is known.
func (w *witness) sees(entry *history.Entry) (waiting core.Option, gone func()) {
	label := fmt.Sprint(w.asked.Add(1))
	w.waiting.Store(label, entry)
	return core.WithLabel(label), func() { w.waiting.Delete(label) }
}

func (w *witness) Do(ctx context.Context, ops []*core.Op) {
	sent := history.Now()
	w.Backend.Do(ctx, ops)
	for _, op := range ops {
		entry, waits := w.waiting.Load(op.Label)
		switch granted := op.Action == core.Try && (op.Verdict == core.Granted || op.Err != nil); {
		case !waits:
		case granted, op.Err == nil && (op.Action == core.Try || op.Action == core.Arrive):
			entry.(*history.Entry).Heard(sent, granted)
		}
	}
}

// wantKept fails the test for what has gone wrong with a hold, other than its end in a process that was too busy to
// renew it: of that the judges know.
func wantKept(t *testing.T, ctx context.Context, key string, err error) {
	if err != nil && !errors.Is(err, core.ErrLost) && ctx.Err() == nil {
		t.Errorf("%q: %v", key, err)
	}
}

// leadOnce leads, at most for a moment.
func leadOnce(ctx context.Context, l core.Locker, recorder *history.Recorder) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	led := false
	entry := recorder.Ask(history.Request{Key: "leader"})
	err := core.Lead(ctx, l, "leader", func(ctx context.Context) error {
		if led {
			return nil // lost in between, and led again: one is enough
		}
		led = true
		lease, _ := core.FromContext(ctx)
		entry.Got(lease)
		time.Sleep(rand.N(8 * time.Millisecond))
		entry.Releasing()
		return nil
	})
	if !led {
		entry.Refused(err)
		return
	}
	entry.Released(err)
}

// carryOver holds a key, has another engine take part, and leaves it to that one: for the judges it is one hold.
func carryOver(t *testing.T, ctx context.Context, one, two *core.Locks, recorder *history.Recorder) {
	const key = "carried"
	entry := recorder.Ask(history.Request{Key: key})
	outer, err := one.Acquire(ctx, key, core.WithWait(2*time.Second))
	if err != nil {
		entry.Refused(err)
		return
	}
	entry.Got(outer)
	token, err := outer.Export(secret, time.Minute)
	wantKept(t, ctx, key, err)
	inner, err := two.Acquire(core.ContextWithOwner(ctx, secret, token), key)
	if err != nil {
		wantKept(t, ctx, key, err)
		entry.Releasing()
		entry.Released(outer.Release(ctx))
		return
	}
	wantKept(t, ctx, key, outer.Release(ctx))
	entry.Still(inner)
	time.Sleep(rand.N(8 * time.Millisecond))
	entry.Releasing()
	err = inner.Release(ctx)
	entry.Released(err)
	wantKept(t, ctx, key, err)
}

func holdBoth(t *testing.T, ctx context.Context, l core.Locker, recorder *history.Recorder) {
	var entries []*history.Entry
	for _, key := range bothKeys {
		entries = append(entries, recorder.Ask(history.Request{Key: key}))
	}
	m, err := core.AcquireAll(ctx, l, bothKeys, core.WithWait(2*time.Second))
	if err != nil {
		for _, entry := range entries {
			entry.Refused(err)
		}
		return
	}
	for i, lease := range m.Leases() {
		entries[i].Got(lease)
	}
	time.Sleep(rand.N(8 * time.Millisecond))
	for _, entry := range entries {
		entry.Releasing()
	}
	err = m.Release(ctx)
	for _, entry := range entries {
		entry.Released(err)
	}
	wantKept(t, ctx, "both", err)
}
