package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/sony/gobreaker/v2"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/fallback"
	"github.com/latchkit/latchkit/internal/history"
	"github.com/latchkit/latchkit/internal/redistest"
)

// workerEnv makes this test binary a worker.
const workerEnv = "LATCHKIT_CHAOS_WORKER"

// order is what a worker is to do: the first line of its standard input. It goes on until that ends.
type order struct {
	Process    string
	Backend    string // redis, sentinel, cluster, redlock, fallback
	Addrs      []string
	TTL        time.Duration
	MaxTTL     time.Duration // of a RedLock
	Goroutines int
	Seed       uint64
	History    string // a file to make
	Register   string // a socket
	Mix        []task
	First      []task // of the first goroutine
}

// task is one way to use a lock; each goroutine picks among them again and again.
type task struct {
	history.Request
	Wait time.Duration
	// Hold is for how long most holds are used, at the most. One in sixteen is used for far longer.
	Hold time.Duration
	// Steady holds are all used for exactly Hold, and renewed but for those that Expire.
	Steady, Expires bool
}

// work is the worker's main function. It writes a line for each hold that it has finished.
func work(in io.Reader, out io.Writer) error {
	logging.Disable()
	lines := bufio.NewReader(in)
	text, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	var o order
	if err := json.Unmarshal(text, &o); err != nil {
		return err
	}
	backend, closeClients, err := o.open()
	if err != nil {
		return err
	}
	defer closeClients()
	locks, err := core.New(backend, core.WithTTL(o.TTL), core.WithLabel(o.Process))
	if err != nil {
		return err
	}
	recorder, err := history.Create(o.History, o.Process)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		stop()
	}()

	var hands sync.WaitGroup
	errs := make([]error, o.Goroutines)
	for i := range errs {
		hands.Go(func() {
			o := o
			if i == 0 && len(o.First) > 0 {
				o.Mix = o.First
			}
			h := hand{order: o, locks: locks, recorder: recorder, rng: rand.New(rand.NewPCG(o.Seed, uint64(i))), out: out}
			errs[i] = h.run(ctx)
		})
	}
	hands.Wait()
	limit, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	locks.Close(limit)
	return errors.Join(append(errs, recorder.Close())...)
}

// open returns the backend, and what closes its clients.
func (o order) open() (core.Backend, func(), error) {
	switch o.Backend {
	case "redis":
		rdb := redis.NewClient(&redis.Options{Addr: o.Addrs[0]})
		return core.Redis(rdb), func() { rdb.Close() }, nil
	case "sentinel":
		rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: redistest.MasterName, SentinelAddrs: o.Addrs})
		return core.Redis(rdb), func() { rdb.Close() }, nil
	case "cluster":
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: o.Addrs})
		return core.Redis(rdb), func() { rdb.Close() }, nil
	case "redlock":
		var nodes []redis.UniversalClient
		for _, addr := range o.Addrs {
			nodes = append(nodes, redis.NewClient(&redis.Options{Addr: addr}))
		}
		return core.RedLock(nodes, core.WithMaxTTL(o.MaxTTL), core.WithNodeTimeout(o.TTL)), func() {
			for _, rdb := range nodes {
				rdb.Close()
			}
		}, nil
	case "fallback":
		rdb := redis.NewClient(&redis.Options{Addr: o.Addrs[0]})
		return fallback.Wrap(core.Redis(rdb), fallback.WithBreaker(gobreaker.Settings{Timeout: o.TTL}),
			fallback.WithLogger(slog.New(slog.DiscardHandler))), func() { rdb.Close() }, nil
	}
	return nil, nil, fmt.Errorf("no backend %q", o.Backend)
}

// hand is one goroutine of a worker.
type hand struct {
	order
	locks    *core.Locks
	recorder *history.Recorder
	register *history.RemoteRegister
	rng      *rand.Rand
	out      io.Writer
}

func (h *hand) run(ctx context.Context) (err error) {
	if h.register, err = history.DialRegister(h.Register); err != nil {
		return err
	}
	defer h.register.Close()
	for ctx.Err() == nil && err == nil {
		err = h.once(ctx, h.Mix[h.rng.IntN(len(h.Mix))])
	}
	if ctx.Err() != nil {
		return nil // the register may have gone first
	}
	return err
}

// once asks for a lock, and uses it when it is given.
func (h *hand) once(ctx context.Context, job task) error {
	opts := []core.Option{core.WithWait(job.Wait)}
	switch job.Kind {
	case core.Shared:
		opts = append(opts, core.WithShared())
	case core.Limited:
		opts = append(opts, core.WithLimit(job.Limit))
	}
	if job.Fair {
		opts = append(opts, core.WithFair())
	}
	if job.Expires || !job.Steady && h.rng.IntN(4) == 0 {
		opts = append(opts, core.WithoutRenewal())
	}
	entry := h.recorder.Ask(job.Request)
	lease, err := h.locks.Acquire(ctx, job.Key, opts...)
	if err != nil {
		entry.Refused(err)
		pause(ctx, h.upTo(20*time.Millisecond))
		return nil
	}
	entry.Got(lease)
	told := context.AfterFunc(lease.Context(), func() {
		if errors.Is(context.Cause(lease.Context()), core.ErrLost) {
			entry.Lost()
		}
	})
	err = h.use(job, lease, entry)
	entry.Releasing()
	entry.Released(lease.Release(context.Background()))
	told()
	fmt.Fprintln(h.out, report{job.Key, lease.Fence(), lease.Degraded()})
	return err
}

// use works under the lease: reads the register, takes its time, writes the register. Some holders are careless, like
// one that is stopped between its last look at the lease and the write: they write after the lease has ended.
func (h *hand) use(job task, lease *core.Lease, entry *history.Entry) error {
	exclusive := job.Kind == core.Exclusive
	var fenced, plain int64
	var err error
	if exclusive {
		if fenced, plain, _, err = h.register.Claim(job.Key, lease.Fence()); err != nil {
			return err
		}
	}
	span, careless := h.upTo(job.Hold), false
	switch {
	case job.Steady:
		span = job.Hold
	case h.rng.IntN(16) == 0:
		span, careless = ttl/2+h.upTo(2*ttl), h.rng.IntN(2) == 0
	}
	live := true
	for end := time.Now().Add(span); time.Now().Before(end) && (live || careless); {
		pause(context.Background(), min(time.Until(end), ttl/10))
		live = live && entry.Still(lease)
	}
	if exclusive && (live || careless) {
		_, err = h.register.Write(job.Key, lease.Fence(), fenced+1, plain+1)
	}
	return err
}

func (h *hand) upTo(d time.Duration) time.Duration { return time.Duration(h.rng.Int64N(int64(d))) + 1 }

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
