package core_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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
	{Key: "both"}, // with all of bothKeys
}

var bothKeys = []string{"both", "one of both"}

// Eight clients in four processes, two of which are killed again and again, hold every kind; what they saw is judged.
func TestKindsUnderRandomKills(t *testing.T) {
	server := redistest.Start(t)
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
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
	var wg sync.WaitGroup
	for range 2 { // two engines in this process stand for two that nobody kills
		wg.Go(func() { keepBusy(t, ctx, server.Client(), path("steady")) })
	}
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := killedProcess(ctx, server.Addr(), path("killed")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	holds, err := history.Read(paths...)
	if err != nil {
		t.Fatal(err)
	}
	granted := map[string]int{}
	var fair []*history.Hold
	for _, h := range holds {
		if h.Granted() {
			granted[fmt.Sprintf("%s, %v", h.Key, h.Kind)]++
			if h.Key == "line" {
				fair = append(fair, h)
			}
		}
	}
	t.Logf("%d processes, %d holds: %v", len(paths), len(holds), granted)
	for _, chore := range chores {
		if granted[fmt.Sprintf("%s, %v", chore.Key, chore.Kind)] < 10 {
			t.Errorf("%s, %v: too few to judge", chore.Key, chore.Kind)
		}
	}
	broken := history.Overlaps(holds)
	broken = append(broken, history.Fences(holds, true)...)
	broken = append(broken, history.Order(fair, 150*time.Millisecond)...)
	for _, v := range broken {
		t.Error(v)
	}
	noCompanionWithoutTTL(t, server.Client())
}

// noCompanionWithoutTTL looks at every key of the server: those of the locks end by themselves.
func noCompanionWithoutTTL(t *testing.T, rdb *redis.Client) {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if ttl := rdb.PTTL(t.Context(), key).Val(); ttl < 0 && ttl != -2 && key != "latchkit~fence" {
			t.Errorf("%q has no TTL", key)
		}
	}
}

// killedProcess runs a process of two clients, and kills it after a while.
func killedProcess(ctx context.Context, addr, path string) error {
	limited, cancel := context.WithTimeout(ctx, 500*time.Millisecond+rand.N(time.Second))
	defer cancel()
	cmd := exec.CommandContext(limited, os.Args[0], "-test.run=^TestChildHoldsEveryKind$")
	cmd.Env = append(os.Environ(), "LATCHKIT_KINDS="+addr+" "+path)
	out, err := cmd.CombinedOutput()
	if limited.Err() == nil {
		return fmt.Errorf("the process ended by itself: %w\n%s", err, out)
	}
	return nil
}

// TestChildHoldsEveryKind is such a process; by itself it has nothing to do.
func TestChildHoldsEveryKind(t *testing.T) {
	args := strings.Fields(os.Getenv("LATCHKIT_KINDS"))
	if len(args) != 2 {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // should its parent die
	defer cancel()
	keepBusy(t, ctx, redis.NewClient(&redis.Options{Addr: args[0]}), args[1])
}

// keepBusy runs two clients over one engine until ctx ends.
func keepBusy(t *testing.T, ctx context.Context, rdb *redis.Client, path string) {
	recorder, err := history.Create(path, filepath.Base(path))
	if err != nil {
		t.Error(err)
		return
	}
	locks := newLocks(t, core.Redis(rdb), core.WithTTL(kindsTTL))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				chore := chores[rand.N(len(chores))]
				if chore.Key == "both" {
					holdBoth(t, ctx, locks, recorder)
				} else {
					holdOne(t, ctx, locks, recorder, chore)
				}
			}
		})
	}
	wg.Wait()
	if err := recorder.Close(); err != nil {
		t.Error(err)
	}
}

func holdOne(t *testing.T, ctx context.Context, l core.Locker, recorder *history.Recorder, chore history.Request) {
	opts := []core.Option{core.WithWait(2 * time.Second)}
	switch chore.Kind {
	case core.Shared:
		opts = append(opts, core.WithShared())
	case core.Limited:
		opts = append(opts, core.WithLimit(chore.Limit))
	}
	if chore.Fair {
		opts = append(opts, core.WithFair())
	}
	entry := recorder.Ask(chore)
	lease, err := l.Acquire(ctx, chore.Key, opts...)
	if err != nil {
		entry.Refused(err)
		return
	}
	entry.Got(lease)
	time.Sleep(rand.N(8 * time.Millisecond))
	entry.Releasing()
	err = lease.Release(ctx)
	entry.Released(err)
	if err != nil && ctx.Err() == nil {
		t.Errorf("release of %q: %v", chore.Key, err)
	}
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
	if err != nil && ctx.Err() == nil {
		t.Errorf("release of both: %v", err)
	}
}
