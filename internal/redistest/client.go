package redistest

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client is a new client of this server with go-redis' own settings, closed at the end of the test.
func (s *Server) Client() *redis.Client { return s.NewClient(nil) }

// NewClient is Client with the settings that mod makes.
func (s *Server) NewClient(mod func(*redis.Options)) *redis.Client {
	opts := &redis.Options{Addr: s.Addr()}
	if mod != nil {
		mod(opts)
	}
	rdb := redis.NewClient(opts)
	s.t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// ask sends one command on a connection of its own, which no restart can have broken before.
func (s *Server) ask(args ...any) *redis.Cmd {
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, DialerRetries: 1, DialTimeout: time.Second})
	defer func() { _ = rdb.Close() }()
	return rdb.Do(context.Background(), args...)
}
