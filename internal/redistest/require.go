package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// requireServer finds the server's binary. A test that cannot have one is skipped, or fails where a run without Redis
// would prove nothing.
func requireServer(t testing.TB, binary string) string {
	t.Helper()
	if binary == "" {
		binary = "redis-server"
	}
	path, err := exec.LookPath(binary)
	if err == nil {
		return path
	}
	if os.Getenv("LATCHKIT_REQUIRE_REDIS") == "1" {
		t.Fatalf("LATCHKIT_REQUIRE_REDIS=1, and there is no Redis: %v", err)
	}
	skip(t, fmt.Sprintf("no Redis (%v); `make test` installs it", err))
	return ""
}

// requireFaketime finds libfaketime where the distributions put it. It is optional even when Redis is required. A server of
// another system brings an allocator along, with which neither libfaketime alone (it hangs) nor beside libc (it crashes)
// gets on.
func requireFaketime(t testing.TB) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		skip(t, "a server's clock can be faked on Linux only")
	}
	if os.Getenv("LATCHKIT_REDIS_SERVER") != "" {
		skip(t, "only the clock of the system's own server can be faked, and LATCHKIT_REDIS_SERVER names another")
	}
	for _, pattern := range []string{
		"/usr/lib/*/faketime/libfaketime.so.1",
		"/usr/lib/faketime/libfaketime.so.1",
		"/usr/lib64/faketime/libfaketime.so.1",
		"/usr/local/lib/faketime/libfaketime.so.1",
	} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0]
		}
	}
	skip(t, "no libfaketime; the package is called faketime or libfaketime")
	return ""
}

// told keeps each reason to one line of output.
var told sync.Map

// skip says so on standard error too: without -v, go test keeps the reason of a skip to itself.
func skip(t testing.TB, reason string) {
	t.Helper()
	if _, again := told.LoadOrStore(reason, true); !again {
		fmt.Fprintf(os.Stderr, "SKIPPED %s and others: %s\n", t.Name(), reason)
	}
	t.Skip(reason)
}
