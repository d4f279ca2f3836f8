package otellock

import (
	"maps"
	"sync"
	"sync/atomic"
)

// cache is a map that is read on every lock and written a few times in the life of a process: reads take no mutex
// and allocate nothing, each write copies.
type cache[K comparable, V any] struct {
	limit int
	mu    sync.Mutex
	m     atomic.Pointer[map[K]V]
}

func (c *cache[K, V]) get(key K) (V, bool) {
	if m := c.m.Load(); m != nil {
		v, ok := (*m)[key]
		return v, ok
	}
	var none V
	return none, false
}

// load returns the value of key, made by build when it is new. ok is false when the cache is full: the value was
// built, and not kept.
func (c *cache[K, V]) load(key K, build func() V) (value V, ok bool) {
	if v, ok := c.get(key); ok {
		return v, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok := c.get(key); ok {
		return v, true
	}
	if c.len() >= c.limit {
		return build(), false
	}
	next := make(map[K]V, c.len()+1)
	if m := c.m.Load(); m != nil {
		maps.Copy(next, *m)
	}
	next[key] = build()
	c.m.Store(&next)
	return next[key], true
}

func (c *cache[K, V]) len() int {
	if m := c.m.Load(); m != nil {
		return len(*m)
	}
	return 0
}

// all calls f with every entry there is when it is called.
func (c *cache[K, V]) all(f func(K, V)) {
	if m := c.m.Load(); m != nil {
		for k, v := range *m {
			f(k, v)
		}
	}
}
