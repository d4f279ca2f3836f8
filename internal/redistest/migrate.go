package redistest

// Migration is a slot on its way from one master to another. Between its steps clients are answered with ASK and
// TRYAGAIN, after the last with MOVED.
type Migration struct {
	From, To *Server

	c    *Cluster
	slot int
}

// MigrateSlot moves the slot of key, with all that is in it, to another master.
func (c *Cluster) MigrateSlot(key string) (from, to *Server) {
	c.t.Helper()
	m := c.StartMigration(key)
	m.MoveKeys()
	m.Finish()
	return m.From, m.To
}

// StartMigration announces that the slot of key goes to another master. No key is moved yet.
func (c *Cluster) StartMigration(key string) *Migration {
	c.t.Helper()
	from := c.MasterFor(key)
	m := &Migration{From: from, To: c.otherMaster(from), c: c, slot: c.slot(key)}
	c.must(m.To, "CLUSTER", "SETSLOT", m.slot, "IMPORTING", c.id(m.From))
	c.must(m.From, "CLUSTER", "SETSLOT", m.slot, "MIGRATING", c.id(m.To))
	return m
}

// MoveKeys moves every key that is in the slot now.
func (m *Migration) MoveKeys() {
	m.c.t.Helper()
	for {
		keys, err := m.From.ask("CLUSTER", "GETKEYSINSLOT", m.slot, 100).StringSlice()
		if err != nil {
			m.c.t.Fatalf("redistest: %v: %v", m.From, err)
		}
		if len(keys) == 0 {
			return
		}
		args := []any{"MIGRATE", "127.0.0.1", m.To.port, "", 0, 5000, "KEYS"}
		for _, key := range keys {
			args = append(args, key)
		}
		m.c.must(m.From, args...)
	}
}

// Finish tells every master whose the slot is, the new one first, and waits until all nodes know.
func (m *Migration) Finish() {
	m.c.t.Helper()
	id := m.c.id(m.To)
	m.c.must(m.To, "CLUSTER", "SETSLOT", m.slot, "NODE", id)
	m.c.must(m.From, "CLUSTER", "SETSLOT", m.slot, "NODE", id)
	for _, n := range m.c.masters() {
		m.c.must(n, "CLUSTER", "SETSLOT", m.slot, "NODE", id)
	}
	mustPoll(m.c.t, "the slot to be seen at its new place", func() error { return m.c.agree(m.slot, m.To) })
}

func (c *Cluster) masters() []*Server {
	var all []*Server
	for _, n := range c.running() {
		if v, err := n.view(); err == nil && v.self().master() {
			all = append(all, n)
		}
	}
	return all
}

// otherMaster is a running master that serves slots, and not this one.
func (c *Cluster) otherMaster(not *Server) *Server {
	c.t.Helper()
	for _, n := range c.masters() {
		if v, err := n.view(); err == nil && n != not && len(v.self().slots) > 0 {
			return n
		}
	}
	c.t.Fatal("redistest: there is no other master")
	return nil
}
