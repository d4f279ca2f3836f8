package core_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// Three processes of 200 goroutines add to a number in a plain file, read and written back under the lock and nothing
// else. LATCHKIT_SOAK=60s runs it for longer.
func TestProcessesCountExactly(t *testing.T) {
	const processes = 3
	duration := 4 * time.Second
	if text := os.Getenv("LATCHKIT_SOAK"); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	server := redistest.Start(t)
	file := filepath.Join(t.TempDir(), "count")
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var total atomic.Int64
	for i := range processes {
		wg.Go(func() {
			n, err := countInProcess(server.Addr(), file, duration)
			if err != nil {
				t.Errorf("process %d: %v", i, err)
			}
			if n == 0 {
				t.Errorf("process %d never had the lock in %v", i, duration)
			}
			t.Logf("process %d counted %d", i, n)
			total.Add(n)
		})
	}
	wg.Wait()
	if got := readCount(t, file); got != total.Load() {
		t.Errorf("the file says %d, the processes counted %d", got, total.Load())
	}
}

func countInProcess(addr, file string, d time.Duration) (int64, error) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestChildCounts$", "-test.v")
	cmd.Env = append(os.Environ(), "LATCHKIT_CHILD="+addr+" "+file+" "+d.String())
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%w\n%s", err, out)
	}
	_, rest, _ := bytes.Cut(out, []byte("counted="))
	text, _, _ := strings.Cut(string(rest), "\n")
	return strconv.ParseInt(text, 10, 64)
}

// TestChildCounts is one of the processes; by itself it has nothing to do.
func TestChildCounts(t *testing.T) {
	args := strings.Fields(os.Getenv("LATCHKIT_CHILD"))
	if len(args) != 3 {
		return
	}
	addr, file := args[0], args[1]
	d, err := time.ParseDuration(args[2])
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	locks := newLocks(t, core.Redis(rdb), core.WithTTL(5*time.Second))
	var wg sync.WaitGroup
	var counted, lastFence atomic.Int64
	for end, g := time.Now().Add(d), 0; g < 200; g++ {
		wg.Go(func() {
			for time.Now().Before(end) {
				err := core.Do(t.Context(), locks, "count", func(ctx context.Context) error {
					lease, _ := core.FromContext(ctx)
					if last := lastFence.Swap(lease.Fence()); lease.Fence() <= last {
						t.Errorf("fence %d after %d", lease.Fence(), last)
					}
					n := readCount(t, file)
					counted.Add(1)
					return os.WriteFile(file, []byte(strconv.FormatInt(n+1, 10)), 0o600)
				}, core.WithWait(core.Forever))
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	fmt.Printf("counted=%d\n", counted.Load())
}

func readCount(t *testing.T, file string) int64 {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
