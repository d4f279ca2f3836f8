package core

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
