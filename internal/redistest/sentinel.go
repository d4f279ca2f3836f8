package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// MasterName is what the sentinels call the master.
const MasterName = "mymaster"

// SentinelSet is a master with replicas, watched by sentinels that replace it when it is down.
type SentinelSet struct {
	t         testing.TB
	data      []*Server // the first master at the front
	sentinels []*Server
	current   *Server // the master as of the start or the last WaitFailover
}

// StartSentinel starts a master, its replicas and sentinels, and waits until the replicas are in step and every
// sentinel knows all of them. The sentinels take a master for dead after a second, by a majority of them.
func StartSentinel(t testing.TB, replicas, sentinels int, opts ...Option) *SentinelSet {
	t.Helper()
	cfg := configure(t, opts).with("--repl-diskless-sync-delay", "0")
	// Sentinels rewrite the configuration of servers: with a file it lasts over restarts, as it does in production.
	cfg.conf = func(int, string) string { return "# the master\n" }
	master := startAll(t, 1, cfg)[0]

	cfg.conf = func(int, string) string { return fmt.Sprintf("replicaof 127.0.0.1 %d\n", master.port) }
	followers := startAll(t, replicas, cfg)
	for _, r := range followers {
		mustPoll(t, fmt.Sprint(r, " to replicate"), r.replicating)
	}

	// The sentinels come last: they look for replicas when they start and then every ten seconds only.
	cfg.sentinel = true
	cfg.conf = func(port int, dir string) string { return sentinelConf(port, dir, master.port, sentinels/2+1) }
	set := &SentinelSet{t: t, data: append([]*Server{master}, followers...), current: master}
	set.sentinels = startAll(t, sentinels, cfg)
	mustPoll(t, "the sentinels to know one another", set.complete)
	return set
}

func sentinelConf(port int, dir string, master, quorum int) string {
	return fmt.Sprintf(`port %d
bind 127.0.0.1
protected-mode no
dir %q
sentinel monitor %[3]s 127.0.0.1 %[4]d %[5]d
sentinel down-after-milliseconds %[3]s 1000
sentinel failover-timeout %[3]s 5000
sentinel parallel-syncs %[3]s 1
`, port, dir, MasterName, master, quorum)
}

// complete is nil when every sentinel that runs knows all replicas and all other sentinels.
func (s *SentinelSet) complete() error {
	for _, sentinel := range s.sentinels {
		if !sentinel.answers() {
			continue
		}
		m, err := s.masterAt(sentinel)
		if err != nil {
			return err
		}
		if m["flags"] != "master" || m["num-slaves"] != strconv.Itoa(len(s.data)-1) ||
			m["num-other-sentinels"] != strconv.Itoa(len(s.sentinels)-1) {
			return fmt.Errorf("%v sees flags %s, %s replicas, %s other sentinels", sentinel, m["flags"], m["num-slaves"], m["num-other-sentinels"])
		}
	}
	return nil
}

// masterAt is what one sentinel knows of the master.
func (s *SentinelSet) masterAt(sentinel *Server) (map[string]string, error) {
	rdb := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr(), MaxRetries: -1})
	defer func() { _ = rdb.Close() }()
	return rdb.Master(context.Background(), MasterName).Result()
}

// Client is a new client that asks the sentinels for the master, with go-redis' own settings; closed at the end of the
// test.
func (s *SentinelSet) Client() *redis.Client { return s.NewClient(nil) }

// NewClient is Client with the settings that mod makes.
func (s *SentinelSet) NewClient(mod func(*redis.FailoverOptions)) *redis.Client {
	opts := &redis.FailoverOptions{MasterName: MasterName, SentinelAddrs: addrs(s.sentinels)}
	if mod != nil {
		mod(opts)
	}
	rdb := redis.NewFailoverClient(opts)
	s.t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Sentinels are all sentinels.
func (s *SentinelSet) Sentinels() []*Server { return s.sentinels }

// Nodes are all servers that hold data, the first master at the front.
func (s *SentinelSet) Nodes() []*Server { return s.data }

// Master is the server that the sentinels name, alive or not.
func (s *SentinelSet) Master() *Server {
	s.t.Helper()
	var master *Server
	mustPoll(s.t, "the sentinels to agree on a master", func() (err error) {
		master, err = s.agreed()
		return err
	})
	return master
}

// Replicas are all data servers but the master.
func (s *SentinelSet) Replicas() []*Server {
	s.t.Helper()
	master := s.Master()
	var all []*Server
	for _, n := range s.data {
		if n != master {
			all = append(all, n)
		}
	}
	return all
}

// agreed is the master in the eyes of every sentinel that runs.
func (s *SentinelSet) agreed() (*Server, error) {
	var master *Server
	for _, sentinel := range s.sentinels {
		if !sentinel.answers() {
			continue
		}
		m, err := s.masterAt(sentinel)
		if err != nil {
			return nil, err
		}
		named := s.byPort(m["port"])
		if named == nil || master != nil && named != master {
			return nil, fmt.Errorf("%v names port %s", sentinel, m["port"])
		}
		master = named
	}
	if master == nil {
		return nil, errors.New("no sentinel runs")
	}
	return master, nil
}

func (s *SentinelSet) byPort(port string) *Server {
	for _, n := range s.data {
		if strconv.Itoa(n.port) == port {
			return n
		}
	}
	return nil
}

// Failover makes the sentinels replace the master though nothing ails it, and returns the new one.
func (s *SentinelSet) Failover(t testing.TB) *Server {
	t.Helper()
	mustPoll(t, "SENTINEL FAILOVER", func() error {
		return s.anySentinel().ask("SENTINEL", "FAILOVER", MasterName).Err()
	})
	return s.WaitFailover(t)
}

func (s *SentinelSet) anySentinel() *Server {
	for _, sentinel := range s.sentinels {
		if sentinel.answers() {
			return sentinel
		}
	}
	return s.sentinels[0]
}

// WaitFailover waits until the sentinels name another master than at the start, or than the last WaitFailover
// returned, and this one knows that it is.
func (s *SentinelSet) WaitFailover(t testing.TB) *Server {
	t.Helper()
	var master *Server
	mustPoll(t, "a failover", func() (err error) {
		if master, err = s.agreed(); err != nil {
			return err
		}
		if master == s.current {
			return errors.New("no new master")
		}
		return master.leading()
	})
	s.current = master
	return master
}

func (s *Server) leading() error {
	info, err := s.ask("INFO", "replication").Text()
	if err == nil && !strings.Contains(info, "role:master") {
		err = fmt.Errorf("INFO replication: %s", info)
	}
	return err
}
