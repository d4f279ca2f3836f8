package redistest

import (
	"errors"
	"fmt"
)

// MasterFor is the running server that serves key. While the cluster is in two minds it is the one elected last.
func (c *Cluster) MasterFor(key string) *Server {
	c.t.Helper()
	slot := c.slot(key)
	var master *Server
	mustPoll(c.t, "a master for "+key, func() error {
		master = c.claimant(slot)
		if master == nil {
			return fmt.Errorf("slot %d is served by nobody", slot)
		}
		return nil
	})
	return master
}

// claimant is the running node that itself says that it serves slot; of two, the one with the greater epoch.
func (c *Cluster) claimant(slot int) *Server {
	var best *Server
	epoch := -1
	for _, n := range c.running() {
		v, err := n.view()
		if err != nil {
			continue
		}
		if me := v.self(); me.master() && me.serves(slot) && me.epoch > epoch {
			best, epoch = n, me.epoch
		}
	}
	return best
}

// Failover makes a replica of key's master take over in agreement with it, and returns the new master once every
// running node knows it.
func (c *Cluster) Failover(key string) *Server {
	c.t.Helper()
	old := c.MasterFor(key)
	replica := c.replicaOf(old)
	mustPoll(c.t, "CLUSTER FAILOVER", func() error { return replica.ask("CLUSTER", "FAILOVER").Err() })
	return c.WaitFailover(key, old)
}

// WaitFailover waits until another server than old serves key in the eyes of every running node, and returns it. It is
// for the test that has killed, paused or cut off the old master.
func (c *Cluster) WaitFailover(key string, old *Server) *Server {
	c.t.Helper()
	slot := c.slot(key)
	var master *Server
	mustPoll(c.t, "a failover", func() error {
		master = c.claimant(slot)
		if master == nil || master == old {
			return errors.New("no new master")
		}
		return c.agree(slot, master)
	})
	c.WaitOK()
	return master
}

// agree is nil when every running node sees master serve slot.
func (c *Cluster) agree(slot int, master *Server) error {
	return c.each(func(n *Server) error {
		v, err := n.view()
		if err == nil && v.owner(slot) != master.port {
			err = fmt.Errorf("thinks that port %d serves slot %d", v.owner(slot), slot)
		}
		return err
	})
}

// replicaOf is a running replica of master.
func (c *Cluster) replicaOf(master *Server) *Server {
	c.t.Helper()
	id := c.id(master)
	var replica *Server
	mustPoll(c.t, fmt.Sprint("a replica of ", master), func() error {
		for _, n := range c.running() {
			if v, err := n.view(); err == nil && v.self().masterID == id {
				replica = n
				return nil
			}
		}
		return errors.New("none runs")
	})
	return replica
}
