package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/embedded"
)

// startDemo starts a Redis inside the program in which there are a few locks, and says where.
func startDemo(address, prefix *string) (stop func(), err error) {
	at, stopRedis, err := embedded.Start()
	if err != nil {
		return nil, err
	}
	*address, *prefix = at, "shop:"
	rdb := redis.NewClient(&redis.Options{Addr: at})
	ctx, cancel := context.WithCancel(context.Background())
	locks, err := core.New(core.Redis(rdb), core.WithPrefix(*prefix))
	stop = func() {
		cancel()
		if locks != nil {
			_ = locks.Close(ctx) // frees all, for ctx has ended
		}
		rdb.Close()
		stopRedis()
	}
	for _, taken := range []struct {
		key, label string
		opts       []core.Option
	}{
		{"order:42", "web-1/4711", nil},
		{"order:43", "web-2/815", []core.Option{core.WithTTL(10 * time.Second)}},
		{"stock:7", "web-1/4711", []core.Option{core.WithShared()}},
		{"stock:7", "web-2/815", []core.Option{core.WithShared()}},
		{"report:daily", "scheduler-0/17", []core.Option{core.WithTTL(time.Hour)}},
	} {
		if err == nil {
			_, err = locks.Acquire(ctx, taken.key, append(taken.opts, core.WithLabel(taken.label))...)
		}
	}
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}
