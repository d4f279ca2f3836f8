package redistest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const slots = 16384

// Cluster is a Redis Cluster of servers on loopback. Its nodes may be paused, killed and restarted like any server.
type Cluster struct {
	t     testing.TB
	nodes []*Server // the first masters at the front
}

// StartCluster starts masters that share the slots evenly, each with its replicas, and waits until every node has
// every other in its view and says that the cluster is well.
func StartCluster(t testing.TB, masters, replicasPerMaster int, opts ...Option) *Cluster {
	t.Helper()
	cfg := configure(t, opts).with(
		"--cluster-enabled", "yes",
		"--cluster-config-file", "nodes.conf",
		"--cluster-node-timeout", "2000", // a dead master is replaced some 4 s later
		"--repl-diskless-sync-delay", "0",
	)
	c := &Cluster{t: t, nodes: startAll(t, masters*(1+replicasPerMaster), cfg)}
	c.shareSlots(masters)
	c.introduce()
	c.attachReplicas(masters, replicasPerMaster)
	c.WaitOK()
	return c
}

// shareSlots also gives each master an epoch of its own, while they are still alone: without it they would all claim
// the same one and settle it by collisions.
func (c *Cluster) shareSlots(masters int) {
	c.t.Helper()
	for i, n := range c.nodes[:masters] {
		c.must(n, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		args := []any{"CLUSTER", "ADDSLOTS"}
		for slot := i * slots / masters; slot < (i+1)*slots/masters; slot++ {
			args = append(args, slot)
		}
		c.must(n, args...)
	}
}

// introduce makes each pair of nodes meet, which is faster than to wait for gossip.
func (c *Cluster) introduce() {
	c.t.Helper()
	for i, n := range c.nodes {
		for _, other := range c.nodes[i+1:] {
			c.must(n, "CLUSTER", "MEET", "127.0.0.1", other.port)
		}
	}
	mustPoll(c.t, "nodes to meet", func() error {
		return c.each(func(n *Server) error {
			v, err := n.view()
			if err == nil && len(v.nodes) != len(c.nodes) {
				err = fmt.Errorf("knows %d nodes of %d", len(v.nodes), len(c.nodes))
			}
			return err
		})
	})
}

func (c *Cluster) attachReplicas(masters, each int) {
	c.t.Helper()
	for i, n := range c.nodes[masters:] {
		master := c.nodes[i/each]
		id := c.id(master)
		mustPoll(c.t, fmt.Sprint("replica of ", master), func() error {
			return n.ask("CLUSTER", "REPLICATE", id).Err()
		})
	}
}

// WaitOK waits until every node that runs says cluster_state:ok and every replica that runs is in step.
func (c *Cluster) WaitOK() {
	c.t.Helper()
	mustPoll(c.t, "the cluster to be well", func() error { return c.each((*Server).clusterOK) })
}

func (s *Server) clusterOK() error {
	info, err := s.ask("CLUSTER", "INFO").Text()
	if err != nil {
		return err
	}
	if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_slots_ok:16384") {
		return fmt.Errorf("CLUSTER INFO: %s", info)
	}
	v, err := s.view()
	if err != nil {
		return err
	}
	if v.self().master() {
		return nil
	}
	return s.replicating()
}

// replicating is nil when the server is a replica that has its master's data.
func (s *Server) replicating() error {
	info, err := s.ask("INFO", "replication").Text()
	if err == nil && !strings.Contains(info, "master_link_status:up") {
		err = fmt.Errorf("INFO replication: %s", info)
	}
	return err
}

// Nodes are all servers, masters first as the cluster was started.
func (c *Cluster) Nodes() []*Server { return c.nodes }

// Addrs are the addresses of all servers.
func (c *Cluster) Addrs() []string { return addrs(c.nodes) }

func addrs(servers []*Server) []string {
	all := make([]string, len(servers))
	for i, s := range servers {
		all[i] = s.Addr()
	}
	return all
}

// Client is a new client of the cluster with go-redis' own settings, closed at the end of the test.
func (c *Cluster) Client() *redis.ClusterClient { return c.NewClient(nil) }

// NewClient is Client with the settings that mod makes.
func (c *Cluster) NewClient(mod func(*redis.ClusterOptions)) *redis.ClusterClient {
	opts := &redis.ClusterOptions{Addrs: c.Addrs()}
	if mod != nil {
		mod(opts)
	}
	rdb := redis.NewClusterClient(opts)
	c.t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// each asks every node that runs, and stops at the first complaint.
func (c *Cluster) each(ask func(*Server) error) error {
	for _, n := range c.running() {
		if err := ask(n); err != nil {
			return fmt.Errorf("%v: %w", n, err)
		}
	}
	return nil
}

// running leaves out the nodes that a test has killed or paused.
func (c *Cluster) running() []*Server {
	var up []*Server
	for _, n := range c.nodes {
		if n.answers() {
			up = append(up, n)
		}
	}
	return up
}

func (c *Cluster) must(n *Server, args ...any) {
	c.t.Helper()
	if err := n.ask(args...).Err(); err != nil {
		c.t.Fatalf("redistest: %v: %v: %v", n, args[:2], err)
	}
}

func (c *Cluster) id(n *Server) string {
	c.t.Helper()
	id, err := n.ask("CLUSTER", "MYID").Text()
	if err != nil {
		c.t.Fatalf("redistest: %v: %v", n, err)
	}
	return id
}

// slot asks a node for the slot of key, so that nothing here has to know hash tags.
func (c *Cluster) slot(key string) int {
	c.t.Helper()
	for _, n := range c.running() {
		if slot, err := n.ask("CLUSTER", "KEYSLOT", key).Int(); err == nil {
			return slot
		}
	}
	c.t.Fatal("redistest: no node of the cluster answers")
	return 0
}
