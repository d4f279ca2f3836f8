package redistest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Server is one redis-server on loopback.
type Server struct {
	t    testing.TB
	cfg  config
	base string // holds the log, the clock and the data folder
	port int

	mu     sync.Mutex // guards what follows
	proc   *process
	paused bool
}

// Start starts one server without persistence and waits until it answers.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	return StartN(t, 1, opts...)[0]
}

// StartN starts n servers that know nothing of one another, at the same time.
func StartN(t testing.TB, n int, opts ...Option) []*Server {
	t.Helper()
	return startAll(t, n, configure(t, opts))
}

// startAll starts n servers of a kind, and leaves none behind when one of them fails.
func startAll(t testing.TB, n int, cfg config) []*Server {
	t.Helper()
	servers := make([]*Server, n)
	for i := range servers {
		servers[i] = &Server{t: t, cfg: cfg, base: t.TempDir()}
		t.Cleanup(servers[i].cleanup)
	}
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() { errs[i] = s.launch() })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return servers
}

func (s *Server) launch() (err error) {
	if s.port, err = takePort(); err != nil {
		return err
	}
	return s.start()
}

// start runs the server on its port and in its folder, and waits until it answers.
func (s *Server) start() error {
	cmd, err := s.command()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has its own copy
	cmd.Stdout, cmd.Stderr = log, log
	proc, err := spawn(cmd)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.proc, s.paused = proc, false
	s.mu.Unlock()
	return s.awaitReady(proc)
}

func (s *Server) awaitReady(proc *process) error {
	err := poll(startLimit, func() error {
		if proc.ended() {
			return nil
		}
		return ping(s.Addr())
	})
	if proc.ended() {
		err = fmt.Errorf("the server on port %d ended:\n%s", s.port, s.Log())
	}
	return err
}

// cleanup runs after everything that the test has put in front of it: clients, proxies.
func (s *Server) cleanup() {
	s.kill()
	if s.port != 0 {
		returnPort(s.port)
	}
	if s.t.Failed() {
		s.t.Logf("log of the server on port %d:\n%s", s.port, s.Log())
	}
}

func (s *Server) kill() {
	if proc := s.running(); proc != nil {
		proc.kill()
		sweepFaketime(proc.cmd.Process.Pid)
	}
}

// running is the process when there is one that has not ended.
func (s *Server) running() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || s.proc.ended() {
		return nil
	}
	return s.proc
}

// answers reports whether the server can be expected to.
func (s *Server) answers() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc != nil && !s.proc.ended() && !s.paused
}

// Pause stops the process where it stands (SIGSTOP): connections stay open and nothing is answered.
func (s *Server) Pause() {
	s.t.Helper()
	s.setPaused(true)
}

// Resume lets a paused server go on (SIGCONT).
func (s *Server) Resume() {
	s.t.Helper()
	s.setPaused(false)
}

func (s *Server) setPaused(paused bool) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	sig := resume
	if paused {
		sig = pause
	}
	if s.proc == nil {
		s.t.Fatalf("redistest: no server to send %v to", sig)
	}
	if err := s.proc.signal(sig); err != nil {
		s.t.Fatalf("redistest: %v: %v", sig, err)
	}
	s.paused = paused
}

// Kill ends the process at once (SIGKILL) and returns when it is gone.
func (s *Server) Kill() { s.kill() }

// Stop lets the process end by itself (SIGTERM), paused or not, and returns when it has.
func (s *Server) Stop() {
	proc := s.running()
	if proc == nil {
		return
	}
	_ = proc.signal(resume)
	proc.end(5 * time.Second)
	sweepFaketime(proc.cmd.Process.Pid)
}

// Restart kills the process if it still runs and starts it again, on the same port and in the same folder. Without
// WithPersistence its memory is lost.
func (s *Server) Restart() {
	s.t.Helper()
	s.kill()
	s.mustStart()
}

// RestartEmpty is Restart after everything that the server had on disk was wiped.
func (s *Server) RestartEmpty() {
	s.t.Helper()
	s.kill()
	if err := os.RemoveAll(s.Dir()); err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
	s.mustStart()
}

func (s *Server) mustStart() {
	s.t.Helper()
	if err := s.start(); err != nil {
		s.t.Fatalf("redistest: restart: %v", err)
	}
}

// Addr is where the server listens, as host:port.
func (s *Server) Addr() string { return loopback(s.port) }

// Port stays the same over restarts.
func (s *Server) Port() int { return s.port }

// Dir is the server's working folder, where its persistence lies.
func (s *Server) Dir() string { return filepath.Join(s.base, "data") }

// Pid is 0 when no process runs.
func (s *Server) Pid() int {
	if proc := s.running(); proc != nil {
		return proc.cmd.Process.Pid
	}
	return 0
}

func (s *Server) String() string { return "redis:" + strconv.Itoa(s.port) }
