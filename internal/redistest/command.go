package redistest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// command builds the server's command line and writes what it wants to find on disk.
func (s *Server) command() (*exec.Cmd, error) {
	if err := os.MkdirAll(s.Dir(), 0o700); err != nil {
		return nil, err
	}
	args, err := s.writeConf()
	if err != nil {
		return nil, err
	}
	if s.cfg.sentinel {
		args = append(args, "--sentinel")
	} else {
		args = slices.Concat(args, s.defaults(), s.cfg.args)
	}
	cmd := exec.Command(s.cfg.binary, args...)
	cmd.Dir = s.Dir()
	env, err := s.clockEnv()
	cmd.Env = append(os.Environ(), env...)
	return cmd, err
}

// writeConf writes the configuration file once. The server rewrites it, and is to find what it wrote when it restarts.
func (s *Server) writeConf() (args []string, err error) {
	if s.cfg.conf == nil {
		return nil, nil
	}
	file := filepath.Join(s.Dir(), "server.conf")
	if _, err := os.Stat(file); os.IsNotExist(err) {
		contents := s.cfg.conf(s.port, s.Dir())
		if err := os.WriteFile(file, []byte(contents), 0o600); err != nil {
			return nil, err
		}
	}
	return []string{file}, nil
}

// defaults make a server that keeps nothing on disk. The log goes to standard output, and so shares a file with what
// the server says before it has read its configuration.
func (s *Server) defaults() []string {
	return []string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--protected-mode", "no",
		"--dir", s.Dir(), "--logfile", "", "--daemonize", "no",
		"--save", "", "--appendonly", "no",
	}
}
