package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
)

// standBy is a worker: it runs the jobs whenever it is this process's turn to lead. args are the Redis, and the prefix of
// its keys.
func standBy(ctx context.Context, out io.Writer, args []string) error {
	addr, prefix := args[0], args[1]
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	locks, err := core.New(core.Redis(rdb), core.WithPrefix(prefix), core.WithTTL(ttl))
	if err != nil {
		return err
	}
	defer locks.Close(context.WithoutCancel(ctx))

	jobs := scheduler{rdb, prefix + "last job", out}
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
	out  io.Writer
}

// run goes on until ctx ends, which it does before another can lead.
func (s scheduler) run(ctx context.Context) error {
	lease, _ := core.FromContext(ctx)
	fmt.Fprintln(s.out, "leads", lease.Fence())
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
		fmt.Fprintln(s.out, "job", last+1)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
