package load

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/redistest"
)

// Very many locks are taken and given back, each on a key of its own and, one in eight, on a key that others want too.
// Nothing grows with their number: neither memory nor goroutines, neither the server's keys and memory nor connections.
func TestNothingGrows(t *testing.T) {
	server := redistest.Start(t)
	locks, err := core.New(core.Redis(server.Client()))
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(t.Context())
	n, next := either(20_000, 1_000_000), 0
	churn := func(n int) {
		first := next
		next += n
		each(n, func(i int) {
			key := fmt.Sprint("soak:", first+i)
			if i%8 == 0 {
				key = fmt.Sprint("contended:", i/8%4)
			}
			lease, err := locks.Acquire(context.Background(), key, core.WithWait(core.Forever))
			if err != nil {
				t.Error(err)
				return
			}
			if err := lease.Release(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	churn(n / 10) // pools and buffers come to their size
	before := settle(t, server)
	began := time.Now()
	churn(n)
	t.Logf("acquired and released: %s", perSecond(n, began))
	after := settle(t, server)
	t.Logf("before: %v", before)
	t.Logf("after:  %v", after)

	const noise = 4 << 20
	if after.heap > before.heap+noise {
		t.Errorf("the heap has grown by %d bytes in %d locks", after.heap-before.heap, n)
	}
	if after.memory > before.memory+noise {
		t.Errorf("the server's memory has grown by %d bytes in %d locks", after.memory-before.memory, n)
	}
	if after.goroutines > before.goroutines+8 {
		t.Errorf("%d goroutines more", after.goroutines-before.goroutines)
	}
	if after.clients > before.clients+hands {
		t.Errorf("%d connections more", after.clients-before.clients)
	}
	if after.keys > before.keys {
		t.Errorf("%d keys more", after.keys-before.keys)
	}
}

// settle measures when what runs in the background, and what is kept for a moment, has come to rest.
func settle(t *testing.T, server *redistest.Server) usage {
	t.Helper()
	now := measure(t, server)
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); {
		time.Sleep(250 * time.Millisecond)
		last := now
		if now = measure(t, server); now.goroutines == last.goroutines && now.keys == last.keys && now.clients == last.clients {
			break
		}
	}
	return now
}
