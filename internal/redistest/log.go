package redistest

import (
	"os"
	"path/filepath"
	"strings"
)

const logTail = 40 // lines

func (s *Server) logFile() string { return filepath.Join(s.base, "redis.log") }

// Log is the end of what the server has written, over all its restarts.
func (s *Server) Log() string {
	all, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(all)), "\n")
	return strings.Join(lines[max(0, len(lines)-logTail):], "\n")
}
