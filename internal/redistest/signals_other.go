//go:build !unix

package redistest

import "syscall"

// There is no redis-server to start here; tests that ask for one are skipped before they send a signal.
const (
	pause     = syscall.SIGKILL
	resume    = syscall.SIGKILL
	terminate = syscall.SIGKILL
)
