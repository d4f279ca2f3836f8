package core_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

var secret = []byte("a secret that both ends know")

func export(t testing.TB, lease *core.Lease) string {
	t.Helper()
	token, err := lease.Export(secret, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// called is the context of a call that came with token.
func called(t testing.TB, token string) context.Context {
	return core.ContextWithOwner(t.Context(), secret, token)
}

func free(t testing.TB, l core.Locker, key string) bool {
	t.Helper()
	lease, err := l.Acquire(context.Background(), key)
	if err == nil {
		release(t, lease)
	} else if !errors.Is(err, core.ErrNotAcquired) {
		t.Fatal(err)
	}
	return err == nil
}

func TestOwnerTakesPartAcrossProcesses(t *testing.T) {
	oneStore(t, func(t *testing.T, b core.Backend) {
		caller, callee, third, stranger := newLocks(t, b), newLocks(t, b), newLocks(t, b), newLocks(t, b)
		for name, first := range map[string]string{"the inner first": "inner", "the outer first": "outer"} {
			outer := acquire(t, caller, "order:42")
			ctx := called(t, export(t, outer))
			began := time.Now()
			inner, err := callee.Acquire(ctx, "order:42", core.WithWait(10*time.Second))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("%s: it waited %v for itself", name, took)
			}
			if inner.Fence() != outer.Fence() || inner.Owner() == outer.Owner() {
				t.Errorf("%s: fence %d inside %d", name, inner.Fence(), outer.Fence())
			}
			// And on to a third, from a lease or from the token alone.
			for _, tokens := range [][]string{core.ExportOwners(inner.Context(), secret, time.Minute),
				core.ExportOwners(ctx, secret, time.Minute)} {
				if len(tokens) != 1 {
					t.Fatalf("%s: %d tokens", name, len(tokens))
				}
				innermost, err := third.Acquire(called(t, tokens[0]), "order:42")
				if err != nil || innermost.Fence() != outer.Fence() {
					t.Fatalf("%s: the third: %v", name, err)
				}
				info, err := stranger.Inspect(t.Context(), "order:42")
				if err != nil || len(info.Holders) != 1 || info.Holders[0].Count != 3 {
					t.Errorf("%s: inspect: %+v, %v", name, info, err)
				}
				release(t, innermost)
			}
			if free(t, stranger, "order:42") || free(t, callee, "order:42") {
				t.Errorf("%s: free while two hold it", name)
			}
			leases := []*core.Lease{inner, outer}
			if first == "outer" {
				leases = []*core.Lease{outer, inner}
			}
			release(t, leases[0])
			if free(t, stranger, "order:42") {
				t.Errorf("%s: free while one holds it", name)
			}
			waiting := make(chan *core.Lease)
			go func() {
				lease, err := callee.Acquire(context.Background(), "order:42", core.WithWait(20*time.Second))
				if err != nil {
					t.Errorf("%s: waiter: %v", name, err)
				}
				waiting <- lease
			}()
			eventually(t, 5*time.Second, "one waits", func() bool { return callee.Queued("order:42") == 1 })
			began = time.Now()
			release(t, leases[1])
			release(t, <-waiting)
			if took := time.Since(began); took > 900*time.Millisecond {
				t.Errorf("%s: the next came after %v", name, took)
			}
			if _, err := callee.Acquire(ctx, "order:42"); !errors.Is(err, core.ErrLost) {
				t.Errorf("%s: under a hold that has ended: %v", name, err)
			}
			if !free(t, stranger, "order:42") {
				t.Errorf("%s: held by nobody, and not free", name)
			}
		}
	})
}

func TestOwnerKeepsTheKeyForWhoIsLeft(t *testing.T) {
	oneStore(t, func(t *testing.T, b core.Backend) {
		caller, callee, stranger := newLocks(t, b), newLocks(t, b), newLocks(t, b)
		// The caller dies; the callee renews, and goes on.
		outer := acquire(t, caller, "k", core.WithTTL(200*time.Millisecond), core.WithoutRenewal())
		inner, err := callee.Acquire(called(t, export(t, outer)), "k", core.WithTTL(300*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		<-outer.Context().Done()
		wantErr(t, outer.Release(t.Context()), core.ErrLost)
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if free(t, stranger, "k") || inner.Context().Err() != nil {
				t.Fatal("lost while the callee renews it")
			}
		}
		release(t, inner)
		if !free(t, stranger, "k") {
			t.Error("not free with the last")
		}
		// The callee dies; it delays the key by its own TTL at most.
		outer = acquire(t, caller, "k")
		dead, err := callee.Acquire(called(t, export(t, outer)), "k", core.WithTTL(300*time.Millisecond), core.WithoutRenewal())
		if err != nil {
			t.Fatal(err)
		}
		<-dead.Context().Done()
		release(t, outer)
		eventually(t, time.Second, "free after a dead callee", func() bool { return free(t, stranger, "k") })
	})
}

func TestOwnerAndKinds(t *testing.T) {
	oneStore(t, func(t *testing.T, b core.Backend) {
		caller, callee, writer := newLocks(t, b), newLocks(t, b), newLocks(t, b)
		// A reader calls another, while a writer waits: the two readers must not wait for him.
		reader := acquire(t, caller, "k", core.WithShared())
		got := make(chan *core.Lease)
		go func() {
			lease, err := writer.Acquire(context.Background(), "k", core.WithWait(20*time.Second))
			if err != nil {
				t.Error(err)
			}
			got <- lease
		}()
		eventually(t, 5*time.Second, "a writer waits", func() bool {
			info, err := caller.Inspect(t.Context(), "k")
			return err == nil && info.Waiters == 1
		})
		ctx := called(t, export(t, reader))
		inner, err := callee.Acquire(ctx, "k", core.WithShared())
		if err != nil || inner.Fence() != reader.Fence() {
			t.Fatalf("a reader for a reader: %v", err)
		}
		if _, err := callee.Acquire(ctx, "k"); !errors.Is(err, core.ErrInvalidOption) || !errors.Is(err, core.ErrNotAcquired) {
			t.Errorf("a writer for a reader: %v", err)
		}
		release(t, reader)
		release(t, inner)
		lease := <-got
		inner, err = callee.Acquire(called(t, export(t, lease)), "k", core.WithShared())
		if err != nil {
			t.Fatalf("a reader for a writer: %v", err)
		}
		release(t, lease)
		if free(t, caller, "k") {
			t.Error("free while the callee holds it")
		}
		release(t, inner)
		permit := acquire(t, caller, "permits", core.WithLimit(2))
		if _, err := permit.Export(secret, time.Minute); !errors.Is(err, core.ErrInvalidOption) {
			t.Errorf("export of a permit: %v", err)
		}
		release(t, permit)
	})
}

func TestOwnerThatIsNotGenuineIsIgnored(t *testing.T) {
	b := core.Local()
	caller, callee := newLocks(t, b), newLocks(t, b)
	lease := acquire(t, caller, "k")
	token := export(t, lease)
	refused := func(name string, ctx context.Context) {
		t.Helper()
		if _, err := callee.Acquire(ctx, "k"); !errors.Is(err, core.ErrNotAcquired) {
			t.Errorf("%s: %v", name, err)
		}
	}
	before := core.OwnerTokens()
	forgeries := map[string]string{"empty": "", "cut": token[:len(token)-1], "longer": token + "A", "noise": "not a token",
		"of dots": strings.Repeat(".", 200)}
	for i := range len(token) {
		if i%7 == 0 {
			other := byte('A')
			if token[i] == other {
				other = 'B'
			}
			forgeries["changed at "+token[:i]] = token[:i] + string(other) + token[i+1:]
		}
	}
	for name, forged := range forgeries {
		refused(name, called(t, forged))
	}
	refused("another secret", core.ContextWithOwner(t.Context(), []byte("another secret of length"), token))
	refused("no secret", core.ContextWithOwner(t.Context(), nil, token))
	if got := core.OwnerTokens().Forged - before.Forged; got != int64(len(forgeries)+2) {
		t.Errorf("%d forgeries counted, want %d", got, len(forgeries)+2)
	}
	short, err := lease.Export(secret, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond)
	refused("expired", called(t, short))
	other := acquire(t, callee, "other")
	refused("for another key", called(t, export(t, other)))
	got := core.OwnerTokens()
	if got.Expired != before.Expired+1 || got.Foreign != before.Foreign+1 {
		t.Errorf("counts %+v after %+v", got, before)
	}
	for _, bad := range []struct {
		secret []byte
		ttl    time.Duration
	}{{secret[:15], time.Minute}, {secret, 0}, {secret, -1}, {secret, 25 * time.Hour}} {
		if _, err := lease.Export(bad.secret, bad.ttl); !errors.Is(err, core.ErrInvalidOption) {
			t.Errorf("export with %d bytes for %v: %v", len(bad.secret), bad.ttl, err)
		}
	}
	if raw, _ := base64.RawURLEncoding.DecodeString(token); strings.Contains(string(raw), lease.Owner()) {
		t.Error("a token tells its owner")
	}
	release(t, lease)
	release(t, other)
	if _, err := lease.Export(secret, time.Minute); !errors.Is(err, core.ErrNotHeld) {
		t.Errorf("export after release: %v", err)
	}
}

// A lease whose owner was carried away goes back to the backend, and is not passed on in its process under the same owner.
func TestExportedLeaseIsNotHandedOn(t *testing.T) {
	s := newScripted()
	locks := newLocks(t, s)
	lease := acquire(t, locks, "k")
	token := export(t, lease)
	next := make(chan *core.Lease)
	go func() {
		lease, err := locks.Acquire(context.Background(), "k", core.WithWait(10*time.Second))
		if err != nil {
			t.Error(err)
		}
		next <- lease
	}()
	eventually(t, 5*time.Second, "one is queued", func() bool { return locks.Queued("k") == 1 })
	owner := lease.Owner()
	release(t, lease)
	second := <-next
	if second.Owner() == owner || s.count(core.Release) != 1 {
		t.Error("handed on under the owner that was carried away")
	}
	if _, err := newLocks(t, s).Acquire(called(t, token), "k"); !errors.Is(err, core.ErrLost) {
		t.Errorf("a token outlived its lease: %v", err)
	}
	release(t, second)
}

func TestRedLockAndTimestampCountNoHolds(t *testing.T) {
	locks := newLocks(t, core.Timestamp(redistest.Embedded(t)))
	lease := acquire(t, locks, "k")
	if _, err := lease.Export(secret, time.Minute); !errors.Is(err, core.ErrInvalidOption) {
		t.Errorf("export: %v", err)
	}
	release(t, lease)
}

func FuzzOwnerToken(f *testing.F) {
	locks := newLocks(f, core.Local())
	lease := acquire(f, locks, "k")
	// One for each process of the fuzzer, so that what is genuine in another is forged here.
	secret := make([]byte, 32)
	rand.Read(secret)
	genuine, err := lease.Export(secret, time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(genuine)
	f.Add("")
	f.Add(genuine[1:])
	f.Add(genuine + "=")
	f.Add(genuine[:80] + "\r\n" + genuine[80:])
	f.Add(strings.Repeat("A", 200))
	f.Fuzz(func(t *testing.T, token string) {
		ctx := core.ContextWithOwner(t.Context(), secret, token)
		if accepted := ctx != t.Context(); accepted != (token == genuine) {
			t.Errorf("accepted %v: %q", accepted, token)
		}
	})
}
