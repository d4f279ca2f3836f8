//go:build !linux

package chaos

import "github.com/latchkit/latchkit/internal/redistest"

func smallDisk(a *arena, _ ...redistest.Option) {
	a.Skip("SKIPPED: a small disk is mounted on Linux only")
}

func fillDisk(*arena) {}
