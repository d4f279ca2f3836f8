package core_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// tryOnce has a Backend try key once.
func tryOnce(b core.Backend, key string) *core.Op {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	op := &core.Op{Action: core.Try, Hold: core.Hold{Key: key, TTL: time.Minute}, Owner: strings.Repeat("0123456789abcdef", 2), Fences: 1}
	b.Do(ctx, []*core.Op{op})
	return op
}

// ill is a way in which a server cannot serve.
type ill struct {
	name string
	args []string
	// make makes the server ill, and returns the client that is to see it (nil: one with go-redis's own settings).
	make  func(t *testing.T, s *redistest.Server) *redis.Client
	want  error
	cause string // in the server's words
}

var ills = []ill{
	{"READONLY", nil, func(t *testing.T, s *redistest.Server) *redis.Client {
		master := redistest.Start(t)
		host, port, _ := strings.Cut(master.Addr(), ":")
		must(t, s.Client().ReplicaOf(context.Background(), host, port).Err())
		return nil
	}, core.ErrUnavailable, "READONLY"},
	{"MASTERDOWN", []string{"--replica-serve-stale-data", "no", "--replica-read-only", "no"}, func(t *testing.T, s *redistest.Server) *redis.Client {
		must(t, s.Client().ReplicaOf(context.Background(), "127.0.0.1", "1").Err())
		return nil
	}, core.ErrUnavailable, "MASTERDOWN"},
	{"NOREPLICAS", []string{"--min-replicas-to-write", "1"}, nil, core.ErrUnavailable, "NOREPLICAS"},
	{"OOM", nil, func(t *testing.T, s *redistest.Server) *redis.Client {
		must(t, s.Client().ConfigSet(context.Background(), "maxmemory", "1").Err())
		return nil
	}, core.ErrUnavailable, "OOM"},
	{"MISCONF", []string{"--stop-writes-on-bgsave-error", "yes"}, failToSave, core.ErrUnavailable, "MISCONF"},
	{"CLUSTERDOWN", []string{"--cluster-enabled", "yes"}, nil, core.ErrUnavailable, "CLUSTERDOWN"},
	{"LOADING", []string{"--enable-debug-command", "yes", "--loading-process-events-interval-bytes", "1024"}, load,
		core.ErrUnavailable, "LOADING"},
	{"BUSY", []string{"--busy-reply-threshold", "10"}, busy, core.ErrUnavailable, "BUSY"},
	{"maxclients", nil, func(t *testing.T, s *redistest.Server) *redis.Client {
		must(t, s.Client().ConfigSet(context.Background(), "maxclients", "1").Err())
		return nil
	}, core.ErrUnavailable, "max number of clients"},
	{"NOAUTH", nil, func(t *testing.T, s *redistest.Server) *redis.Client {
		rdb := s.Client()
		must(t, rdb.ConfigSet(context.Background(), "requirepass", "secret").Err())
		return nil
	}, core.ErrDenied, "NOAUTH"},
	{"WRONGPASS", nil, func(t *testing.T, s *redistest.Server) *redis.Client {
		must(t, s.Client().ConfigSet(context.Background(), "requirepass", "secret").Err())
		return s.NewClient(func(o *redis.Options) { o.Password = "guess" })
	}, core.ErrDenied, "WRONGPASS"},
	{"NOPERM for EVALSHA", nil, func(t *testing.T, s *redistest.Server) *redis.Client {
		return as(t, s, "+@all", "-evalsha", "~*", "&*")
	}, core.ErrDenied, "NOPERM"},
	{"NOPERM for the key", nil, func(t *testing.T, s *redistest.Server) *redis.Client {
		return as(t, s, "+@all", "~other*", "~latchkit~*", "&*")
	}, core.ErrDenied, "NOPERM"},
	{"NOPERM for the counter", nil, func(t *testing.T, s *redistest.Server) *redis.Client {
		return as(t, s, "+@all", "~k*", "&*")
	}, core.ErrDenied, "NOPERM"},
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// as returns a client for a user with these rights only.
func as(t *testing.T, s *redistest.Server, rules ...string) *redis.Client {
	t.Helper()
	args := []any{"ACL", "SETUSER", "user", "reset", "on", ">pass"}
	for _, r := range rules {
		args = append(args, r)
	}
	must(t, s.Client().Do(context.Background(), args...).Err())
	return s.NewClient(func(o *redis.Options) { o.Username, o.Password = "user", "pass" })
}

func failToSave(t *testing.T, s *redistest.Server) *redis.Client {
	ctx, rdb := context.Background(), s.Client()
	must(t, os.Mkdir(filepath.Join(s.Dir(), "dump.rdb"), 0o700)) // where the file should go
	must(t, rdb.ConfigSet(ctx, "save", "3600 1").Err())
	must(t, rdb.Set(ctx, "x", 1, 0).Err())
	must(t, rdb.BgSave(ctx).Err())
	eventually(t, 10*time.Second, "a save that fails", func() bool {
		return strings.Contains(rdb.Info(ctx, "persistence").Val(), "rdb_last_bgsave_status:err")
	})
	return nil
}

func load(t *testing.T, s *redistest.Server) *redis.Client {
	ctx, rdb := context.Background(), s.Client()
	for i := range 10 {
		pipe := rdb.Pipeline()
		for j := range 1000 {
			pipe.Set(ctx, fmt.Sprint("bulk", i, "-", j), "value", 0)
		}
		_, err := pipe.Exec(ctx)
		must(t, err)
	}
	must(t, rdb.ConfigSet(ctx, "key-load-delay", "1000").Err())
	loaded := make(chan struct{})
	reload := s.NewClient(func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = time.Minute, -1 })
	go func() {
		defer close(loaded)
		reload.Do(ctx, "DEBUG", "RELOAD")
	}()
	probe := s.NewClient(func(o *redis.Options) { o.MaxRetries = -1 })
	eventually(t, 10*time.Second, "a server that loads", func() bool {
		err := probe.Get(ctx, "x").Err()
		return err != nil && strings.HasPrefix(err.Error(), "LOADING")
	})
	t.Cleanup(func() {
		s.Kill()
		<-loaded
	})
	return nil
}

func busy(t *testing.T, s *redistest.Server) *redis.Client {
	ctx := context.Background()
	hog := s.NewClient(func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = time.Minute, -1 })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		hog.Eval(ctx, "while true do end", nil)
	}()
	probe := s.NewClient(func(o *redis.Options) { o.MaxRetries = -1 })
	eventually(t, 10*time.Second, "a server that is busy", func() bool {
		err := probe.Get(ctx, "x").Err()
		return err != nil && strings.HasPrefix(err.Error(), "BUSY")
	})
	t.Cleanup(func() {
		probe.ScriptKill(ctx)
		<-ended
	})
	return nil
}

// L39, L40: each is what it is, with the server's own words to be had; nothing was done, and nothing is said to be
// doubtful.
func TestIllServers(t *testing.T) {
	t.Parallel()
	for _, i := range ills {
		t.Run(i.name, func(t *testing.T) {
			s := redistest.Start(t, redistest.WithArgs(i.args...))
			var rdb *redis.Client
			if i.make != nil {
				rdb = i.make(t, s)
			}
			if rdb == nil {
				rdb = s.Client()
			}
			for name, b := range map[string]core.Backend{"redis": core.Redis(rdb), "timestamp": core.Timestamp(rdb)} {
				op := tryOnce(b, "k")
				if !errors.Is(op.Err, i.want) || op.Verdict != core.None {
					t.Fatalf("%s: %v, %v; want %v", name, op.Verdict, op.Err, i.want)
				}
				for _, other := range []error{core.ErrUnavailable, core.ErrDenied, core.ErrConflict, core.ErrNotAcquired} {
					if other != i.want && errors.Is(op.Err, other) {
						t.Errorf("%s: %v is %v too", name, op.Err, other)
					}
				}
				var reply redis.Error
				if i.name == "maxclients" {
					continue // the server may hang up before its reply is read
				}
				if !errors.As(op.Err, &reply) {
					t.Errorf("%s: the server's reply is not to be had from %v", name, op.Err)
				} else if !strings.Contains(reply.Error(), i.cause) && i.want == core.ErrUnavailable {
					t.Errorf("%s: the cause is %v, want %s", name, reply, i.cause)
				}
				if !op.Unsent {
					t.Errorf("%s: in doubt, though the server did nothing: %v", name, op.Err)
				}
			}
			locks := newLocks(t, core.Redis(rdb))
			began := time.Now()
			if _, err := locks.Acquire(context.Background(), "k"); !errors.Is(err, i.want) {
				t.Errorf("acquire: %v, want %v", err, i.want)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("acquire took %v to find out", took)
			}
		})
	}
}

// L40: who has no right is told so after one trip.
func TestDeniedIsTriedOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	admin, rdb := s.Client(), as(t, s, "+@all", "-set", "~*", "&*")
	locks := newLocks(t, core.Redis(rdb))
	if _, err := locks.Acquire(context.Background(), "warm"); !errors.Is(err, core.ErrDenied) {
		t.Fatal(err)
	}
	before := commandCalls(t, admin, "evalsha")
	if _, err := locks.Acquire(context.Background(), "k", core.WithWait(3*time.Second)); !errors.Is(err, core.ErrDenied) {
		t.Fatal(err)
	}
	if n := commandCalls(t, admin, "evalsha") - before; n > 3 {
		t.Errorf("%d trips, want one and what takes the hold and the wait back", n)
	}
}

// An acquire that is refused in the midst of its script leaves nothing behind, alone and in a batch.
func TestDeniedLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := redistest.Start(t)
	admin := s.Client()
	for name, rules := range map[string][]string{
		"no SET":               {"+@all", "-set", "~*", "&*"},
		"no GETSET":            {"+@all", "-getset", "~*", "&*"},
		"no ZADD":              {"+@all", "-zadd", "~*", "&*"},
		"no PTTL":              {"+@all", "-pttl", "~*", "&*"},
		"no TIME":              {"+@all", "-time", "~*", "&*"},
		"counter read only":    {"+@all", "~k*", "~latchkit~wait*", "%R~latchkit~fence", "&*"},
		"counter not at all":   {"+@all", "~k*", "~latchkit~wait*", "&*"},
		"one key of the batch": {"+@all", "~k1", "~k2", "~latchkit~*", "&*"},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, admin.FlushAll(ctx).Err())
			b := core.Redis(as(t, s, rules...))
			locks := newLocks(t, b)
			lease, err := locks.Acquire(ctx, "k0")
			switch {
			case err == nil:
				release(t, lease)
			case !errors.Is(err, core.ErrDenied):
				t.Fatalf("%v, want ErrDenied", err)
			}
			if n := admin.Exists(ctx, "k0").Val(); n != 0 {
				t.Error("the lock stays behind")
			}
			var ops []*core.Op
			for i := range 4 {
				ops = append(ops, &core.Op{Action: core.Try, Hold: core.Hold{Key: fmt.Sprint("k", i), TTL: time.Minute},
					Owner: fmt.Sprintf("%032x", i), Fences: 1})
			}
			b.Do(ctx, ops)
			for _, op := range ops {
				n := admin.Exists(ctx, op.Key).Val()
				if granted := op.Verdict == core.Granted; granted != (n == 1) {
					t.Errorf("%q: %v, %v, but %d in the store", op.Key, op.Verdict, op.Err, n)
				}
				if op.Verdict != core.Granted && !errors.Is(op.Err, core.ErrDenied) {
					t.Errorf("%q: %v, %v", op.Key, op.Verdict, op.Err)
				}
			}
			if name == "one key of the batch" && (ops[1].Err != nil || ops[2].Err != nil) {
				t.Errorf("those that are allowed failed too: %v, %v", ops[1].Err, ops[2].Err)
			}
		})
	}
}

// What stands where the waiters should keeps nobody's lock there: a try that meets it after its grant gives that back.
func TestAForeignCompanionLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rdb := redistest.Start(t).Client()
	must(t, rdb.RPush(ctx, "latchkit~wait:{k}", "no set").Err())
	op := &core.Op{Action: core.Try, Hold: core.Hold{Key: "k", TTL: time.Minute}, Owner: strings.Repeat("a", 32), Fences: 1,
		Waiter: strings.Repeat("e", 16), Waiting: true}
	core.Redis(rdb).Do(ctx, []*core.Op{op})
	if !errors.Is(op.Err, core.ErrConflict) {
		t.Errorf("%v, %v, want ErrConflict", op.Verdict, op.Err)
	}
	if rdb.Exists(ctx, "k").Val() != 0 {
		t.Error("the lock stays behind")
	}
}

// A release that may not look any more says so: its lease is not lost.
func TestDeniedReleaseSaysSo(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3)
	for name, backend := range map[string]func(users []redis.UniversalClient) core.Backend{
		"redis":     func(users []redis.UniversalClient) core.Backend { return core.Redis(users[0]) },
		"redlock":   func(users []redis.UniversalClient) core.Backend { return core.RedLock(users) },
		"timestamp": func(users []redis.UniversalClient) core.Backend { return core.Timestamp(users[0]) },
	} {
		var users []redis.UniversalClient
		for _, s := range ns {
			users = append(users, as(t, s, "+@all", "~*", "&*"))
		}
		locks := newLocks(t, backend(users))
		lease := acquire(t, locks, name)
		for _, s := range ns {
			must(t, s.Client().Do(t.Context(), "ACL", "SETUSER", "user", "-get").Err())
		}
		if err := lease.Release(t.Context()); !errors.Is(err, core.ErrDenied) || errors.Is(err, core.ErrLost) {
			t.Errorf("%s: %v, want ErrDenied", name, err)
		}
	}
}

// So does a reader on a RedLock.
func TestDeniedReaderSaysSo(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3)
	var users []redis.UniversalClient
	for _, s := range ns {
		users = append(users, as(t, s, "+@all", "~*", "&*"))
	}
	lease := acquire(t, newLocks(t, core.RedLock(users)), "k", core.WithShared())
	for _, s := range ns {
		must(t, s.Client().Do(t.Context(), "ACL", "SETUSER", "user", "-zrange").Err())
	}
	wantErr(t, lease.Extend(t.Context(), time.Minute), core.ErrDenied)
	wantErr(t, lease.Release(t.Context()), core.ErrDenied)
}

// L43: what is no lock is left as it is.
func TestConflict(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := redistest.Start(t)
	rdb := s.Client()
	locks := newLocks(t, core.Redis(rdb))
	for name, set := range map[string]func(key string) error{
		"list":               func(k string) error { return rdb.RPush(ctx, k, "a").Err() },
		"hash":               func(k string) error { return rdb.HSet(ctx, k, "a", "b").Err() },
		"string without TTL": func(k string) error { return rdb.Set(ctx, k, "a", 0).Err() },
		"list with TTL": func(k string) error {
			return errors.Join(rdb.RPush(ctx, k, "a").Err(), rdb.Expire(ctx, k, time.Hour).Err())
		},
	} {
		must(t, set(name))
		before := rdb.Dump(ctx, name).Val()
		for _, wait := range []time.Duration{0, time.Second} {
			if _, err := locks.Acquire(ctx, name, core.WithWait(wait)); !errors.Is(err, core.ErrConflict) {
				t.Errorf("%s: %v, want ErrConflict", name, err)
			}
		}
		if err := locks.ForceRelease(ctx, name); !errors.Is(err, core.ErrConflict) && !errors.Is(err, core.ErrInvalidOption) {
			t.Errorf("%s: force release: %v, want ErrConflict", name, err)
		}
		if rdb.Dump(ctx, name).Val() != before {
			t.Errorf("%s was touched", name)
		}
	}
}

// In its last millisecond a lock has something left: 0 would mean that nothing is known, and waiters would sleep on.
func TestLastMillisecondIsLeft(t *testing.T) {
	t.Parallel()
	b := core.Redis(redistest.Start(t).Client())
	for _, fair := range []bool{false, true} {
		for i := range 40 {
			hold := core.Hold{Key: fmt.Sprint("k", i, fair), TTL: 10 * time.Millisecond, Fair: fair}
			for n := 0; ; n++ {
				op := &core.Op{Action: core.Try, Hold: hold, Owner: fmt.Sprintf("%032x", n), Fences: 1}
				b.Do(t.Context(), []*core.Op{op})
				if op.Err != nil {
					t.Fatal(op.Err)
				}
				if op.Verdict == core.Refused && op.Left <= 0 {
					t.Fatalf("%v left of a TTL of 10ms", op.Left)
				}
				if op.Verdict == core.Granted && n > 0 {
					break
				}
			}
		}
	}
}
