//go:build !linux

package chaos

import "syscall"

// tied: a worker ends with its standard input.
func tied() *syscall.SysProcAttr { return nil }
