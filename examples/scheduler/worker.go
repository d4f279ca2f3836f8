package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
)

// workerEnv makes a process of this program a worker: the Redis, and the prefix of its keys.
const workerEnv = "LATCHKIT_SCHEDULER"

func isWorker() bool { return os.Getenv(workerEnv) != "" }

// work is a worker's main.
func work() int {
	addr, prefix, _ := strings.Cut(os.Getenv(workerEnv), " ")
	if err := standBy(addr, prefix); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// standBy runs the jobs whenever it is this process's turn to lead, until standard input ends: with its parent at the
// latest.
func standBy(addr, prefix string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	locks, err := core.New(core.Redis(rdb), core.WithPrefix(prefix), core.WithTTL(ttl))
	if err != nil {
		return err
	}
	defer locks.Close(context.Background())

	jobs := scheduler{rdb, prefix + "last job"}
	err = core.Lead(ctx, locks, "leader", jobs.run)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// scheduler runs the jobs one after the other. It counts by reading a number and writing the next one, which goes wrong
// as soon as two do it at once.
type scheduler struct {
	rdb  *redis.Client
	last string // the key of that number
}

// run goes on until ctx ends, which it does before another can lead.
func (s scheduler) run(ctx context.Context) error {
	lease, _ := core.FromContext(ctx)
	fmt.Println("leads", lease.Fence())
	pause := time.NewTicker(rest)
	defer pause.Stop()
	for {
		last, err := s.rdb.Get(ctx, s.last).Int64()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if err := s.rdb.Set(ctx, s.last, last+1, time.Minute).Err(); err != nil {
			return err
		}
		fmt.Println("job", last+1)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
