package redistest

import (
	"fmt"
	"os"
	"path/filepath"
)

// clockEnv is what puts a server into another time: libfaketime, which reads the time to tell from a file, at each call.
//
// Debian's redis-server hangs at its start unless libc is preloaded beside libfaketime. The monotonic clock stays true,
// as it does when an operator or NTP sets a machine's clock.
func (s *Server) clockEnv() ([]string, error) {
	if s.cfg.faketime == "" {
		return nil, nil
	}
	if err := s.writeClock(s.cfg.clock); err != nil {
		return nil, err
	}
	return []string{
		"LD_PRELOAD=" + s.cfg.faketime + ":libc.so.6",
		"FAKETIME_TIMESTAMP_FILE=" + s.clockFile(),
		"FAKETIME_NO_CACHE=1",
		"DONT_FAKE_MONOTONIC=1",          // up to libfaketime 0.9.9
		"FAKETIME_DONT_FAKE_MONOTONIC=1", // since
	}, nil
}

// SetClock changes the time of a server started with WithFaketime, from its next reading on: "+1h" and "-30s" against
// the true time, "x0.5" for half the speed since its start, "+0" for the truth. It outlasts restarts.
func (s *Server) SetClock(spec string) {
	s.t.Helper()
	if s.cfg.faketime == "" {
		s.t.Fatal("redistest: SetClock needs a server started with WithFaketime")
	}
	s.cfg.clock = spec
	if err := s.writeClock(spec); err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
}

func (s *Server) clockFile() string { return filepath.Join(s.base, "clock") }

// writeClock puts the whole file there at once: the server may read it at any instant.
func (s *Server) writeClock(spec string) error {
	if spec == "" || spec[0] == 'x' {
		spec = "+0 " + spec // libfaketime takes no heed of a speed alone
	}
	next := s.clockFile() + ".next"
	if err := os.WriteFile(next, []byte(spec+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(next, s.clockFile())
}

// sweepFaketime removes the shared memory that libfaketime leaves behind in a process that was killed.
func sweepFaketime(pid int) {
	for _, kind := range []string{"faketime_shm_%d", "sem.faketime_sem_%d"} {
		_ = os.Remove(filepath.Join("/dev/shm", fmt.Sprintf(kind, pid)))
	}
}
