//go:build !linux

package redistest

import (
	"os/exec"
	"strconv"
)

// startTied sets a shell beside the child that waits on a pipe from this process. The pipe closes when this process
// ends, however it ends; then the shell kills the child.
func startTied(cmd *exec.Cmd) (release func(), err error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	watchdog := exec.Command("/bin/sh", "-c", `read -r _; kill -9 "$1"`, "sh", strconv.Itoa(cmd.Process.Pid))
	pipe, err := watchdog.StdinPipe()
	if err == nil {
		err = watchdog.Start()
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	return func() {
		// The watchdog goes before its pipe does: the child's number may belong to another process by now.
		_ = watchdog.Process.Kill()
		_ = watchdog.Wait()
		_ = pipe.Close()
	}, nil
}
