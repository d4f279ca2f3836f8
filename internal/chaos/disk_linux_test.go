package chaos

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/latchkit/latchkit/internal/redistest"
)

// smallDisk is one server whose AOF lies on a file system of two megabytes.
func smallDisk(a *arena, opts ...redistest.Option) {
	dir := a.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		a.Skipf("SKIPPED: a small disk needs the right to mount one: %v", err)
	}
	a.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			a.Errorf("unmount: %v", err)
		}
	})
	oneServer(a, append(opts, redistest.WithArgs("--dir", dir, "--appendonly", "yes", "--appendfsync", "everysec",
		"--auto-aof-rewrite-percentage", "0"))...)
	a.disk = dir
}

// fillDisk leaves no room for the AOF.
func fillDisk(a *arena) {
	filler := filepath.Join(a.disk, "filler")
	file, err := os.Create(filler)
	if err != nil {
		a.Fatal(err)
	}
	for chunk := bytes.Repeat([]byte("x"), 4096); err == nil; {
		_, err = file.Write(chunk)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		a.Fatal(err)
	}
	a.last()
	file.Close()
	if err := os.Remove(filler); err != nil {
		a.Fatal(err)
	}
}
