// Package redistest starts real redis-server processes for tests: one, several independent ones, a cluster, or a
// Sentinel set. They listen on loopback, live in the test's temporary folder and are gone when the test is, also when
// it panics or its binary is killed. They can be paused, killed, restarted, cut off and put into another time.
//
// Without a redis-server in the PATH a test is skipped; with LATCHKIT_REQUIRE_REDIS=1 it fails instead.
// LATCHKIT_REDIS_SERVER names another binary, such as a newer Redis or a Valkey.
//
// Everything here waits by polling up to a deadline and calls t.Fatal beyond it, so it is to be called from the test's
// own goroutine.
package redistest
