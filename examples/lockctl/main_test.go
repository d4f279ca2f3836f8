package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/embedded"
	"github.com/latchkit/latchkit/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onBoth runs test on an embedded Redis and on a real one.
func onBoth(t *testing.T, test func(t *testing.T, addr string, rdb *redis.Client, locks *core.Locks)) {
	start := func(t *testing.T, addr string) {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		locks, err := core.New(core.Redis(rdb), core.WithPrefix("shop:"), core.WithLabel("web-1/4711"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = locks.Close(ctx)
			rdb.Close()
		})
		test(t, addr, rdb, locks)
	}
	t.Run("embedded", func(t *testing.T) {
		addr, stop, err := embedded.Start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
		start(t, addr)
	})
	t.Run("real", func(t *testing.T) { start(t, redistest.Start(t).Addr()) })
}

// lockctl runs the program against addr.
func lockctl(t *testing.T, addr, input string, args ...string) (out string, err error) {
	t.Helper()
	var said, problems bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err = run(ctx, append([]string{"-redis", addr, "-prefix", "shop:"}, args...), strings.NewReader(input), &said, &problems)
	return said.String() + problems.String(), err
}

func take(t *testing.T, locks *core.Locks, key string, opts ...core.Option) *core.Lease {
	t.Helper()
	lease, err := locks.Acquire(t.Context(), key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func TestList(t *testing.T) {
	onBoth(t, func(t *testing.T, addr string, rdb *redis.Client, locks *core.Locks) {
		if out, err := lockctl(t, addr, "", "ls"); err != nil || out != "no locks\n" {
			t.Errorf("%v, %s", err, out)
		}
		fence := take(t, locks, "order:42").Fence()
		for range 3 {
			take(t, locks, "stock:7", core.WithShared())
		}
		take(t, locks, "bad\n\x1b[31m\xff*", core.WithLabel("\x1b]0;title\x07"))
		if err := take(t, locks, "done").ReleaseAfter(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		go locks.Acquire(t.Context(), "order:42", core.WithFair(), core.WithWait(core.Forever)) // with companions
		// Neighbours that are no locks, and one of another service.
		rdb.Set(t.Context(), "shop:config", "a", 0)
		rdb.Set(t.Context(), "shop:cached", "a", time.Minute)
		rdb.RPush(t.Context(), "shop:list", "a")
		rdb.Set(t.Context(), "other:order:42", "a", time.Minute)

		out, err := lockctl(t, addr, "", "ls")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if err != nil || len(lines) != 5 {
			t.Fatalf("%v\n%s", err, out)
		}
		for i, pattern := range []string{
			`^KEY +KIND +HOLDER +AGE +LEFT +FENCE +WAIT$`,
			`^bad\\n\\x1b\[31m\\xff\* +exclusive +\\x1b\]0;title\\a .* 0$`,
			`^done +cooldown +web-1/4711 .* [0-9.]+ s `,
			fmt.Sprintf(`^order:42 +exclusive +web-1/4711 .* s +%d +[01]$`, fence),
			`^stock:7 +shared +web-1/4711 \+2 `,
		} {
			if !regexp.MustCompile(pattern).MatchString(lines[i]) {
				t.Errorf("line %d is %q, want %s", i, lines[i], pattern)
			}
		}
		if out, err := lockctl(t, addr, "", "ls", "sto"); err != nil || strings.Count(out, "\n") != 2 || !strings.Contains(out, "stock:7") {
			t.Errorf("%v\n%s", err, out)
		}
		var entries []entry
		out, err = lockctl(t, addr, "", "ls", "order:", "-json") // flags may stand behind
		if err := errors.Join(err, json.Unmarshal([]byte(out), &entries)); err != nil || len(entries) != 1 || entries[0].Key != "order:42" ||
			entries[0].Holders[0].Fence != fence || entries[0].Holders[0].Remaining <= 0 {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

func TestShowAndForce(t *testing.T) {
	onBoth(t, func(t *testing.T, addr string, _ *redis.Client, locks *core.Locks) {
		if out, err := lockctl(t, addr, "", "show", "order:42"); !errors.Is(err, errNotHeld) || !strings.Contains(out, "free") {
			t.Errorf("%v\n%s", err, out)
		}
		if _, err := lockctl(t, addr, "", "-yes", "force", "order:42"); !errors.Is(err, errNotHeld) {
			t.Error(err)
		}
		lease := take(t, locks, "order:\n42")
		out, err := lockctl(t, addr, "", "show", `order:\n42`)
		for _, want := range []string{`key      order:\n42`, "state    held, exclusive", "holder   web-1/4711", fmt.Sprint("fence    ", lease.Fence())} {
			if err != nil || !strings.Contains(out, want) {
				t.Errorf("%v, no %q in\n%s", err, want, out)
			}
		}
		for _, answer := range []string{"", "no\n", "y\n"} {
			if out, err := lockctl(t, addr, answer, "force", `order:\n42`); err == nil || !strings.Contains(out, "web-1/4711") {
				t.Errorf("%q: %v\n%s", answer, err, out)
			}
		}
		if lease.Context().Err() != nil {
			t.Fatal("it was taken away without a yes")
		}
		if out, err := lockctl(t, addr, "yes\n", "force", `order:\n42`); err != nil || !strings.Contains(out, "free\n") {
			t.Errorf("%v\n%s", err, out)
		}
		if info, err := locks.Inspect(t.Context(), "order:\n42"); err != nil || info.Held {
			t.Errorf("%+v, %v", info, err)
		}
		take(t, locks, "b")
		if out, err := lockctl(t, addr, "", "-yes", "-json", "force", "b"); err != nil || out != `{"forced":true,"key":"b"}`+"\n" {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

func TestWatch(t *testing.T) {
	onBoth(t, func(t *testing.T, addr string, _ *redis.Client, locks *core.Locks) {
		lease := take(t, locks, "order:42")
		ctx, cancel := context.WithCancel(t.Context())
		out := &rounds{}
		out.then = func(n int) {
			switch n {
			case 1:
				if err := lease.Release(ctx); err != nil {
					t.Error(err)
				}
			case 2:
				cancel()
			}
		}
		err := run(ctx, []string{"-redis", addr, "-prefix", "shop:", "-json", "-every", "100ms", "watch"}, nil, out, out)
		if err != nil || !strings.Contains(out.all[0], `"order:42"`) || out.all[1] != "[]\n" {
			t.Errorf("%v, %q", err, out.all)
		}
	})
}

// rounds takes what is written, and calls then after each time.
type rounds struct {
	all  []string
	then func(n int)
}

func (r *rounds) Write(text []byte) (int, error) {
	r.all = append(r.all, string(text))
	r.then(len(r.all))
	return len(text), nil
}

func TestDemo(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-demo", "ls"}, nil, &out, &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "order:42") || !strings.Contains(out.String(), "web-1/4711 +1") {
		t.Error(out.String())
	}
}

func TestWhatIsNotUnderstood(t *testing.T) {
	for _, args := range [][]string{
		{}, {"list"}, {"show"}, {"show", "a", "b"}, {"force", ""}, {"ls", "a", "b"}, {"show", `a\q`}, {"-every", "1ms", "watch"}, {"-x", "ls"},
	} {
		if out, err := lockctl(t, "127.0.0.1:1", "", args...); !errors.Is(err, errUsage) || !strings.Contains(out, "lockctl [flags] ls") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

// A prefix is used as it is given; one that seems to lack its end is spoken of, beside what is printed.
func TestPrefixWithoutASeparator(t *testing.T) {
	onBoth(t, func(t *testing.T, addr string, _ *redis.Client, _ *core.Locks) {
		for prefix, hint := range map[string]bool{"shop": true, "shop2": true, "shop:": false, "shop/": false, "": false} {
			var said, problems bytes.Buffer
			err := run(t.Context(), []string{"-redis", addr, "-prefix", prefix, "ls"}, nil, &said, &problems)
			if err != nil || said.String() != "no locks\n" || strings.Contains(problems.String(), "-prefix "+prefix+":") != hint {
				t.Errorf("%q: %v, %s%s", prefix, err, &said, &problems)
			}
		}
	})
}

func TestNoRedis(t *testing.T) {
	_, err := lockctl(t, "127.0.0.1:1", "", "ls")
	if err == nil || !strings.Contains(err.Error(), "no answer from the Redis at 127.0.0.1:1: ") {
		t.Error(err)
	}
	if _, err = lockctl(t, "redis://:secret@[", "", "ls"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

func TestTablesFit(t *testing.T) {
	long := strings.Repeat("long/", 60)
	info := core.Info{Key: long + "end", Held: true, Holders: []core.Holder{{Label: strings.Repeat("host", 30), Fence: 1 << 50}}}
	for _, width := range []int{80, 120} {
		var out bytes.Buffer
		if err := printTable(&out, [][]string{{"KEY", "KIND", "HOLDER", "AGE", "LEFT", "FENCE", "WAIT"}, row(info)}, width); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > width {
				t.Errorf("%d columns of %d: %s", n, width, line)
			}
		}
		if !strings.Contains(out.String(), "…") || !strings.Contains(out.String(), "end ") {
			t.Error(out.String())
		}
	}
	var out bytes.Buffer
	if err := printLocks(&out, []core.Info{info, info, info}, 1); err != nil || !strings.HasSuffix(out.String(), "… and 2 more\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
