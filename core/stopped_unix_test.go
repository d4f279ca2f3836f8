//go:build unix

package core_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// fencedWrite is a store that refuses who comes with a smaller fence than it has seen.
var fencedWrite = redis.NewScript(`
if tonumber(redis.call('GET', KEYS[1]) or '0') > tonumber(ARGV[1]) then
  return 'refused'
end
redis.call('SET', KEYS[1], ARGV[1])
return 'written'`)

// L13: a process that renews its lease is stopped for longer than the TTL, and goes on. It learns that it has lost the
// lease, its Release says so and takes the key from nobody, and a store with fences refuses its late write.
func TestStoppedProcessLearnsItsLoss(t *testing.T) {
	t.Parallel() // it mostly waits
	server := redistest.Start(t)
	rdb := server.Client()
	holder := exec.Command(os.Args[0], "-test.run=^TestChildIsStopped$", "-test.v")
	holder.Env = append(os.Environ(), "LATCHKIT_STOPPED="+server.Addr())
	pipe, err := holder.StdoutPipe()
	must(t, err)
	must(t, holder.Start())
	defer func() {
		_ = holder.Process.Kill()
		_ = holder.Wait()
	}()
	said := bufio.NewScanner(pipe)
	says := func(prefix string) string {
		for said.Scan() {
			if rest, ok := strings.CutPrefix(said.Text(), prefix); ok {
				return rest
			}
		}
		t.Fatalf("the process ended before it said %q", prefix)
		return ""
	}
	if got := says("first write: "); got != "written" {
		t.Fatalf("the holder's write was %s", got)
	}
	must(t, holder.Process.Signal(syscall.SIGSTOP))
	next := acquire(t, newLocks(t, core.Redis(rdb)), "k", core.WithWait(20*time.Second))
	must(t, fencedWrite.Run(t.Context(), rdb, []string{"store"}, next.Fence()).Err())
	must(t, holder.Process.Signal(syscall.SIGCONT))
	if got := says("late write: "); got != "refused" {
		t.Errorf("the late write was %s", got)
	}
	for _, told := range []string{"context: ", "release: "} {
		if got := says(told); got != "lost" {
			t.Errorf("%s%s, want lost", told, got)
		}
	}
	if rdb.Exists(t.Context(), "k").Val() != 1 {
		t.Error("the next one's key is gone")
	}
	release(t, next)
}

// TestChildIsStopped is the process that is stopped; by itself it has nothing to do.
func TestChildIsStopped(t *testing.T) {
	addr := os.Getenv("LATCHKIT_STOPPED")
	if addr == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // should its parent die
	defer cancel()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	locks := newLocks(t, core.Redis(rdb), core.WithTTL(500*time.Millisecond))
	lease := acquire(t, locks, "k")
	write := func() string {
		answer, err := fencedWrite.Run(ctx, rdb, []string{"store"}, lease.Fence()).Text()
		must(t, err)
		return answer
	}
	word := func(err error) string {
		if errors.Is(err, core.ErrLost) {
			return "lost"
		}
		return fmt.Sprint(err)
	}
	fmt.Println("first write:", write())
	select {
	case <-lease.Context().Done():
	case <-ctx.Done():
	}
	fmt.Println("late write:", write())
	fmt.Println("context:", word(context.Cause(lease.Context())))
	fmt.Println("release:", word(lease.Release(ctx)))
}
