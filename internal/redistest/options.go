package redistest

import (
	"os"
	"slices"
	"testing"
)

// Option changes how servers are started.
type Option func(*config)

type config struct {
	binary   string
	args     []string                          // added to the defaults; the last word wins
	conf     func(port int, dir string) string // contents of a configuration file that the server may rewrite
	sentinel bool
	faketime string // libfaketime to preload; none when empty
	clock    string
}

// WithArgs adds arguments of redis-server, as in WithArgs("--maxmemory", "2mb").
func WithArgs(args ...string) Option {
	return func(c *config) { c.args = append(c.args, args...) }
}

// WithPersistence makes a server durable: every write is on disk before it is answered.
func WithPersistence() Option {
	return WithArgs("--appendonly", "yes", "--appendfsync", "always")
}

// WithFaketime starts servers in another time, such as "+1h", "-30s" or "x0.5", which SetClock can change later. The
// test is skipped where libfaketime is missing.
func WithFaketime(spec string) Option {
	return func(c *config) {
		c.faketime = "wanted"
		c.clock = spec
	}
}

// WithBinary runs another server than the redis-server in the PATH.
func WithBinary(path string) Option {
	return func(c *config) { c.binary = path }
}

// configure reads the options, and skips the test when the machine lacks what they need.
func configure(t testing.TB, opts []Option) config {
	t.Helper()
	c := config{binary: os.Getenv("LATCHKIT_REDIS_SERVER")}
	for _, opt := range opts {
		opt(&c)
	}
	c.binary = requireServer(t, c.binary)
	if c.faketime != "" {
		c.faketime = requireFaketime(t)
	}
	return c
}

// with returns a copy with arguments in front of the user's, which may so overrule them.
func (c config) with(args ...string) config {
	c.args = slices.Concat(args, c.args)
	return c
}
