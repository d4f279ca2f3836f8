package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
)

// store is the Redis, and an engine to ask about locks with. The engine takes none.
type store struct {
	where  string
	prefix string
	rdb    redis.UniversalClient
	engine *core.Locks
}

// companion begins the names of all that stands beside locks; no prefix has it.
const companion = "latchkit~"

// open connects to the Redis at address, and to all of its Cluster if it is in one.
func open(ctx context.Context, address, prefix string) (*store, error) {
	options := &redis.Options{Addr: address}
	if strings.Contains(address, "://") {
		var err error
		if options, err = redis.ParseURL(address); err != nil {
			return nil, errors.New("-redis: not a URL of a Redis") // without it: it may hold a password
		}
	}
	options.DialTimeout = 5 * time.Second
	one := redis.NewClient(options)
	s := &store{where: options.Addr, prefix: prefix, rdb: one}
	if err := one.Ping(ctx).Err(); err != nil {
		one.Close()
		return nil, fmt.Errorf("no answer from the Redis at %s: %w", options.Addr, err)
	}
	if info, err := one.Info(ctx, "cluster").Result(); err == nil && strings.Contains(info, "cluster_enabled:1") {
		one.Close()
		s.rdb = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{options.Addr},
			Username: options.Username, Password: options.Password, TLSConfig: options.TLSConfig})
	}
	var err error
	if s.engine, err = core.New(core.Redis(s.rdb), core.WithPrefix(prefix)); err != nil {
		s.rdb.Close()
		return nil, err
	}
	return s, nil
}

func (s *store) close() {
	_ = s.engine.Close(context.Background()) // it holds nothing
	s.rdb.Close()
}

// askers is how many keys are asked about at the same time.
const askers = 16

// locks finds the locks whose key begins with beginning, in the order of their keys. It goes over the names of all keys,
// with SCAN, in small steps between which Redis serves others. What is no lock of latchkit's is left out.
func (s *store) locks(ctx context.Context, beginning string) ([]core.Info, error) {
	names, err := s.names(ctx, escapeGlob(s.prefix+beginning)+"*")
	if err != nil {
		return nil, fmt.Errorf("look for keys: %w", err)
	}
	var mu sync.Mutex
	var all []core.Info
	var failure error
	var wg sync.WaitGroup
	todo := make(chan string)
	for range askers {
		wg.Go(func() {
			for name := range todo {
				info, err := s.engine.Inspect(ctx, strings.TrimPrefix(name, s.prefix))
				mu.Lock()
				switch {
				case errors.Is(err, core.ErrConflict): // other data
				case err != nil:
					failure = err
				case (info.Held || info.Completed) && !info.Foreign:
					all = append(all, info)
				}
				mu.Unlock()
			}
		})
	}
	for _, name := range names {
		todo <- name
	}
	close(todo)
	wg.Wait()
	slices.SortFunc(all, func(a, b core.Info) int { return strings.Compare(a.Key, b.Key) })
	return all, failure
}

// names returns the names of the keys that may be locks.
func (s *store) names(ctx context.Context, pattern string) ([]string, error) {
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		var mu sync.Mutex
		var all []string
		err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			names, err := s.scan(ctx, node, pattern)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, names...)
			return err
		})
		return unique(all), err
	}
	names, err := s.scan(ctx, s.rdb, pattern)
	return unique(names), err
}

func (s *store) scan(ctx context.Context, node redis.Cmdable, pattern string) (names []string, err error) {
	for cursor := uint64(0); ; {
		var page []string
		if page, cursor, err = node.Scan(ctx, cursor, pattern, 500).Result(); err != nil {
			return nil, err
		}
		for _, name := range page {
			if !strings.HasPrefix(name, companion) && name != s.prefix {
				names = append(names, name)
			}
		}
		if cursor == 0 {
			return names, nil
		}
	}
}

// unique takes out what SCAN has told twice.
func unique(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// escapeGlob has MATCH take text as it is.
func escapeGlob(text string) string { return globs.Replace(text) }

var globs = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`)
