package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/latchkit/latchkit/core"
)

// ttl is that of every lock of every contender.
const ttl = 30 * time.Second

// peer is a contender.
type peer struct {
	name     string
	settings string // as shown with the table
	open     func(where place) locker
}

// place is where a contender works, and how.
type place struct {
	addr       string
	goroutines int
	waits      bool // a lock that is held is waited for, until ctx ends
}

// locker is a contender at work. What lock returns is handed to unlock.
type locker interface {
	lock(ctx context.Context, key string) (held any, err error)
	unlock(ctx context.Context, key string, held any) error
	close()
}

const (
	oursName      = "latchkit"
	rawName       = "raw"
	autoName      = "raw-autopipeline"
	redislockName = "redislock"
	redsyncName   = "redsync"
	rueidisName   = "rueidislock"
)

var peers = map[string]peer{
	oursName: {oursName, "core.New(core.Redis(go-redis, its own settings)); fence, watchdog and hand-off are on, as always",
		func(p place) locker { return newOurs(p) }},
	rawName: {rawName, "go-redis SET NX PX, then EVALSHA of compare-and-delete; one constant owner; PoolSize = goroutines, at least go-redis' own",
		func(p place) locker { rdb := plainClient(p); return &raw{rdb, rdb} }},
	autoName: {autoName, "the same through rdb.AutoPipeline() with its default options",
		func(p place) locker {
			rdb := plainClient(p)
			auto, err := rdb.AutoPipeline()
			check(err)
			return &raw{auto, rdb}
		}},
	redislockName: {redislockName, "PoolSize = goroutines, LinearBackoff(1 ms) where it waits",
		func(p place) locker { return newRedislock(p, redislock.LinearBackoff(time.Millisecond)) }},
	redsyncName: {redsyncName, "PoolSize = goroutines, WithFailFast(true), WithRetryDelay(1 ms) where it waits",
		func(p place) locker { return newRedsync(p, redsync.WithRetryDelay(time.Millisecond)) }},
	rueidisName: {rueidisName, "KeyMajority 1, NoLoopTracking, as its README says for one Redis ≥ 7.0.5",
		func(p place) locker { return newRueidis(p) }},
	// How its own README waits, and its own default, for comparison.
	"redislock-100ms": {"redislock-100ms", "LinearBackoff(100 ms)", func(p place) locker { return newRedislock(p, redislock.LinearBackoff(100*time.Millisecond)) }},
	"redislock-16ms":  {"redislock-16ms", "ExponentialBackoff(16 ms, 512 ms)", func(p place) locker { return newRedislock(p, nil) }},
	"redsync-default": {"redsync-default", "its own retry delay, 50 to 250 ms", func(p place) locker { return newRedsync(p, nil) }},
}

func plainClient(p place) *redis.Client {
	size := 10 * 2
	return redis.NewClient(&redis.Options{Addr: p.addr, PoolSize: max(size, p.goroutines)})
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// ours is latchkit.
type ours struct {
	clients []redis.UniversalClient // its own
	locks   *core.Locks
}

func newOurs(p place) *ours {
	rdb := redis.NewClient(&redis.Options{Addr: p.addr})
	opts := []core.Option{core.WithTTL(ttl)}
	if p.waits {
		opts = append(opts, core.WithWait(core.Forever))
	}
	locks, err := core.New(core.Redis(rdb), opts...)
	check(err)
	return &ours{clients: []redis.UniversalClient{rdb}, locks: locks}
}

func (o *ours) lock(ctx context.Context, key string) (any, error) {
	return o.locks.Acquire(ctx, key)
}

func (o *ours) unlock(ctx context.Context, _ string, held any) error {
	return held.(*core.Lease).Release(ctx)
}

func (o *ours) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if len(o.clients) == 0 {
		return // neither is its own
	}
	_ = o.locks.Close(ctx)
	for _, rdb := range o.clients {
		_ = rdb.Close()
	}
}

// raw is the floor: what a lock cannot do without. It cannot wait, has no fence, and one owner.
type raw struct {
	cmds redis.Cmdable
	rdb  *redis.Client
}

var compareAndDelete = redis.NewScript(`if redis.call("get",KEYS[1])==ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`)

const rawOwner = "0123456789abcdef0123456789abcdef"

var errHeld = errors.New("held")

func (r *raw) lock(ctx context.Context, key string) (any, error) {
	ok, err := r.cmds.SetNX(ctx, key, rawOwner, ttl).Result()
	if err == nil && !ok {
		err = errHeld
	}
	return nil, err
}

func (r *raw) unlock(ctx context.Context, key string, _ any) error {
	return compareAndDelete.Run(ctx, r.cmds, []string{key}, rawOwner).Err()
}

func (r *raw) close() { _ = r.rdb.Close() }

// bsm is redislock.
type bsm struct {
	rdb    *redis.Client
	client *redislock.Client
	retry  redislock.RetryStrategy
	opts   *redislock.Options
}

func newRedislock(p place, retry redislock.RetryStrategy) *bsm {
	b := &bsm{rdb: plainClient(p), retry: retry}
	b.client = redislock.New(b.rdb)
	if p.waits {
		b.opts = &redislock.Options{RetryStrategy: retry}
	}
	return b
}

func (b *bsm) lock(ctx context.Context, key string) (any, error) {
	opts := b.opts
	if opts != nil && b.retry == nil { // it counts, so each lock has its own
		opts = &redislock.Options{RetryStrategy: redislock.ExponentialBackoff(16*time.Millisecond, 512*time.Millisecond)}
	}
	return b.client.Obtain(ctx, key, ttl, opts)
}

func (b *bsm) unlock(ctx context.Context, _ string, held any) error {
	return held.(*redislock.Lock).Release(ctx)
}

func (b *bsm) close() { _ = b.rdb.Close() }

// sync4 is redsync.
type sync4 struct {
	clients []*redis.Client
	rs      *redsync.Redsync
	opts    []redsync.Option
}

func newRedsync(p place, delay redsync.Option) *sync4 {
	rdb := plainClient(p)
	s := &sync4{clients: []*redis.Client{rdb}, rs: redsync.New(goredis.NewPool(rdb))}
	s.opts = []redsync.Option{redsync.WithExpiry(ttl), redsync.WithFailFast(true), redsync.WithTries(1)}
	if p.waits {
		s.opts[2] = redsync.WithTries(math.MaxInt32)
		if delay != nil {
			s.opts = append(s.opts, delay)
		}
	}
	return s
}

func (s *sync4) lock(ctx context.Context, key string) (any, error) {
	m := s.rs.NewMutex(key, s.opts...)
	return m, m.LockContext(ctx)
}

func (s *sync4) unlock(ctx context.Context, _ string, held any) error {
	ok, err := held.(*redsync.Mutex).UnlockContext(ctx)
	if err == nil && !ok {
		err = errors.New("redsync: not unlocked")
	}
	return err
}

func (s *sync4) close() {
	for _, rdb := range s.clients {
		_ = rdb.Close()
	}
}

// rueidisLock is rueidislock.
type rueidisLock struct {
	locker rueidislock.Locker
	waits  bool
}

func newRueidis(p place) *rueidisLock {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{p.addr}},
		KeyMajority:    1,
		NoLoopTracking: true,
		KeyValidity:    ttl,
		// It bounds a single command as well, and 20 ms is soon over on a busy machine.
		TryNextAfter: time.Second,
	})
	check(err)
	return &rueidisLock{l, p.waits}
}

func (r *rueidisLock) lock(ctx context.Context, key string) (any, error) {
	try := r.locker.TryWithContext
	if r.waits {
		try = r.locker.WithContext
	}
	_, cancel, err := try(ctx, key)
	return cancel, err
}

func (r *rueidisLock) unlock(_ context.Context, _ string, held any) error {
	held.(context.CancelFunc)()
	return nil
}

func (r *rueidisLock) close() { r.locker.Close() }

func keysOf(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = keyOfMany(n, i)
	}
	return keys
}

func keyOfMany(n, i int) string { return fmt.Sprintf("bench:%d:key:%06d", n, i) }
