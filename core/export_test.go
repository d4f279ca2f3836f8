package core

// Heartbeat is after how much silence an engine with fair waiters is passed over.
const Heartbeat = heartbeat

// Queued returns how many wait for key in the process, the one who leads included.
func (locks *Locks) Queued(key string) int {
	shard := locks.gates.shard(locks.settings.prefix + key)
	shard.Lock()
	defer shard.Unlock()
	if g := shard.gates[locks.settings.prefix+key]; g != nil {
		return g.queue.len
	}
	return 0
}

// Handles returns how many leases the lease's hold keeps track of.
func (l *Lease) Handles() (n int) {
	shard := l.hold.tenure.gate.shard
	shard.Lock()
	defer shard.Unlock()
	for l := l.hold.leases; l != nil; l = l.sibling {
		n++
	}
	return n
}

// Gates returns how many keys the engine keeps track of.
func (locks *Locks) Gates() (n int) {
	for i := range locks.gates.shards {
		s := &locks.gates.shards[i]
		s.Lock()
		n += len(s.gates)
		s.Unlock()
	}
	return n
}

// VariantHash is the SHA-1 of the script that only the process of that run id may know.
func VariantHash(run string) string { return variantOf("run_id:" + run).sha }
