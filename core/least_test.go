package core_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/core/locktest"
	"github.com/latchkit/latchkit/internal/redistest"
)

// TestConformanceLeastPrivilege runs the suite as a user that may do what docs/redis.md says, and no more.
func TestConformanceLeastPrivilege(t *testing.T) {
	t.Parallel() // with the other suites: they wait more than they work
	user, pass, rules := documentedUser(t)
	// The suite's keys have no prefix; TestLeastPrivilegeOfAPrefix has one.
	rules = slices.DeleteFunc(rules, func(rule string) bool { return rule[0] == '~' })
	rules = append(rules, "~*")
	login := func(o *redis.Options) { o.Username, o.Password = user, pass }

	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		admit(t, user, rules, server)
		locktest.Run(t, func(t *testing.T) core.Backend {
			wipe(t, []*redistest.Server{server})
			return core.Redis(server.NewClient(login))
		})
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.StartCluster(t, 3, 0)
		admit(t, user, append(rules, documented(t, "On a Cluster")...), cluster.Nodes()...)
		locktest.Run(t, func(t *testing.T) core.Backend {
			wipe(t, cluster.Nodes())
			opts := *cluster.Client().Options()
			opts.Username, opts.Password = user, pass
			rdb := redis.NewClusterClient(&opts)
			t.Cleanup(func() { rdb.Close() })
			return core.Redis(rdb)
		})
	})
	t.Run("redlock", func(t *testing.T) {
		t.Parallel()
		servers := redistest.StartN(t, 3)
		admit(t, user, append(rules, documented(t, "The nodes of a RedLock")...), servers...)
		locktest.Run(t, func(t *testing.T) core.Backend {
			wipe(t, servers)
			nodes := make([]redis.UniversalClient, len(servers))
			for i, s := range servers {
				nodes[i] = s.NewClient(login)
			}
			return core.RedLock(nodes, core.WithNodeTimeout(time.Second)) // as TestConformanceRedLock
		})
	})
}

// TestLeastPrivilegeOfAPrefix holds what the user may do: every kind of hold under the prefix, and nothing beside it.
func TestLeastPrivilegeOfAPrefix(t *testing.T) {
	t.Parallel()
	user, pass, rules := documentedUser(t)
	server := redistest.Start(t)
	admit(t, user, rules, server)
	rdb := server.NewClient(func(o *redis.Options) { o.Username, o.Password = user, pass })
	shop := newLocks(t, core.Redis(rdb), core.WithPrefix("shop:"))
	for kind, opts := range map[string][]core.Option{
		"exclusive": nil, "fair": {core.WithFair()}, "shared": {core.WithShared()}, "limited": {core.WithLimit(2)},
	} {
		lease := acquire(t, shop, "order:42", opts...)
		other := newLocks(t, core.Redis(rdb), core.WithPrefix("shop:"))
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error, 1)
		go func() {
			next, err := other.Acquire(ctx, "order:42", core.WithWait(core.Forever))
			waited <- errors.Join(err, next.Release(context.Background()))
		}()
		eventually(t, 5*time.Second, kind+": somebody waits", func() bool {
			info, err := shop.Inspect(ctx, "order:42")
			return err == nil && info.Held && info.Waiters > 0
		})
		release(t, lease)
		if err := <-waited; err != nil {
			t.Errorf("%s: the next: %v", kind, err)
		}
		cancel()
	}
	both, err := core.AcquireAll(t.Context(), shop, []string{"order:42", "order:43"})
	must(t, err)
	must(t, both.Release(t.Context()))
	acquire(t, shop, "order:42")
	must(t, shop.ForceRelease(t.Context(), "order:42"))

	_, err = newLocks(t, core.Redis(rdb), core.WithPrefix("bank:")).Acquire(t.Context(), "order:42")
	wantErr(t, err, core.ErrDenied)
}

// documentedUser returns the user that docs/redis.md makes for locks under the prefix shop:.
func documentedUser(t *testing.T) (name, pass string, rules []string) {
	t.Helper()
	for line := range strings.Lines(redisPage(t)) {
		if words := strings.Fields(line); len(words) > 4 && words[0] == "ACL" && words[1] == "SETUSER" {
			name, rules = words[2], words[3:]
		}
	}
	secret := slices.IndexFunc(rules, func(r string) bool { return strings.HasPrefix(r, ">") })
	if secret < 0 {
		t.Fatalf("docs/redis.md makes no user with a password: %q", rules)
	}
	return name, rules[secret][1:], rules
}

// documented returns the rights that docs/redis.md names in the sentence that begins so.
func documented(t *testing.T, beginning string) (rights []string) {
	t.Helper()
	_, sentence, ok := strings.Cut(redisPage(t), beginning)
	if !ok {
		t.Fatalf("docs/redis.md has no sentence that begins with %q", beginning)
	}
	sentence, _, _ = strings.Cut(sentence, ".")
	for i, part := range strings.Split(sentence, "`") {
		if i%2 == 1 {
			rights = append(rights, strings.Fields(part)...)
		}
	}
	return rights
}

func redisPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

func admit(t *testing.T, user string, rules []string, servers ...*redistest.Server) {
	t.Helper()
	args := []any{"ACL", "SETUSER", user, "reset"}
	for _, r := range rules {
		args = append(args, r)
	}
	for _, s := range servers {
		must(t, s.Client().Do(context.Background(), args...).Err())
	}
}
