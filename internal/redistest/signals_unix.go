//go:build unix

package redistest

import "syscall"

const (
	pause     = syscall.SIGSTOP
	resume    = syscall.SIGCONT
	terminate = syscall.SIGTERM
)
