package redistest_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/internal/redistest"
)

func TestServersAreIndependent(t *testing.T) {
	servers := redistest.StartN(t, 3)
	for _, s := range servers {
		rdb := s.Client()
		if n := rdb.DBSize(bg(t)).Val(); n != 0 {
			t.Errorf("%v starts with %d keys", s, n)
		}
		rdb.Set(bg(t), "key", s.Addr(), 0)
	}
	for _, s := range servers {
		if got := s.Client().Get(bg(t), "key").Val(); got != s.Addr() {
			t.Errorf("%v holds %q", s, got)
		}
	}
}

func TestArgs(t *testing.T) {
	s := redistest.Start(t, redistest.WithArgs("--maxmemory", "2mb"))
	if got := s.Client().ConfigGet(bg(t), "maxmemory").Val()["maxmemory"]; got != "2097152" {
		t.Errorf("maxmemory is %q", got)
	}
}

func TestPauseAndResume(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.NewClient(impatient)
	if err := rdb.Ping(bg(t)).Err(); err != nil {
		t.Fatal(err)
	}
	s.Pause()
	if err := rdb.Ping(bg(t)).Err(); err == nil {
		t.Error("a paused server answers")
	}
	s.Resume()
	within(t, 5*time.Second, func() error { return rdb.Ping(bg(t)).Err() })
}

func TestRestartForgets(t *testing.T) {
	s := redistest.Start(t)
	s.Client().Set(bg(t), "key", "value", 0)
	addr, pid := s.Addr(), s.Pid()

	s.Kill()
	if s.Pid() != 0 {
		t.Errorf("killed, and pid %d runs", s.Pid())
	}
	if err := s.NewClient(impatient).Ping(bg(t)).Err(); err == nil {
		t.Error("a killed server answers")
	}
	s.Restart()
	if s.Addr() != addr || s.Pid() == pid || s.Pid() == 0 {
		t.Errorf("restarted on %s with pid %d, was %s and %d", s.Addr(), s.Pid(), addr, pid)
	}
	if err := s.Client().Get(bg(t), "key").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("remembers: %v", err)
	}
}

func TestPersistenceRemembers(t *testing.T) {
	s := redistest.Start(t, redistest.WithPersistence())
	s.Client().Set(bg(t), "key", "value", 0)
	s.Kill()
	s.Restart()
	if got := s.Client().Get(bg(t), "key").Val(); got != "value" {
		t.Errorf("after Restart: %q", got)
	}
	s.RestartEmpty()
	if n := s.Client().DBSize(bg(t)).Val(); n != 0 {
		t.Errorf("after RestartEmpty: %d keys", n)
	}
}

func TestPausedServerRestartsAndStops(t *testing.T) {
	s := redistest.Start(t)
	s.Pause()
	s.Restart()
	if err := s.Client().Ping(bg(t)).Err(); err != nil {
		t.Error(err)
	}
	s.Pause()
	s.Stop()
	if s.Pid() != 0 {
		t.Error("stopped, and runs")
	}
	if !strings.Contains(s.Log(), "User requested shutdown") {
		t.Errorf("did not end by itself:\n%s", s.Log())
	}
}

// recorder is a test whose failure is looked at.
type recorder struct {
	testing.TB
	fatal string
}

func (r *recorder) Fatalf(format string, args ...any) { r.fatal = format; panic(r) }
func (r *recorder) Skip(...any)                       { r.fatal = "skipped"; panic(r) }

func (r *recorder) run(f func()) {
	defer func() {
		if p := recover(); p != nil && p != any(r) {
			panic(p)
		}
	}()
	f()
}

func TestBadArgumentsFailAtOnce(t *testing.T) {
	redistest.Start(t) // skips where there is no Redis
	r := &recorder{TB: t}
	began := time.Now()
	r.run(func() { redistest.Start(r, redistest.WithArgs("--no-such-directive", "1")) })
	if r.fatal == "" || time.Since(began) > 10*time.Second {
		t.Errorf("got %q after %v", r.fatal, time.Since(began))
	}
}

func TestWithoutRedis(t *testing.T) {
	missing := redistest.WithBinary("no-such-redis-server")
	for require, want := range map[string]string{"": "skipped", "1": "LATCHKIT_REQUIRE_REDIS=1, and there is no Redis: %v"} {
		t.Setenv("LATCHKIT_REQUIRE_REDIS", require)
		r := &recorder{TB: t}
		r.run(func() { redistest.Start(r, missing) })
		if r.fatal != want {
			t.Errorf("LATCHKIT_REQUIRE_REDIS=%q: got %q, want %q", require, r.fatal, want)
		}
	}
}

func TestDirHoldsPersistence(t *testing.T) {
	s := redistest.Start(t, redistest.WithPersistence())
	files, err := os.ReadDir(s.Dir())
	if err != nil || len(files) == 0 {
		t.Errorf("got %v, %v", files, err)
	}
}
