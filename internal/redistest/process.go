package redistest

import (
	"os"
	"os/exec"
	"runtime"
	"time"
)

// process is one run of a server, from its start to its end.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and was reaped
}

// spawn starts cmd so that it cannot outlive this process, in one of the ways of reap_*.go.
//
// The goroutine keeps its thread until the child has ended, because Linux takes the end of the thread that forked for
// the end of the parent.
func spawn(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		release, err := startTied(cmd)
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait()
		release()
		close(p.done)
	}()
	return p, <-started
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the process at once, also when it is stopped.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// end asks the process to leave, and insists after a while.
func (p *process) end(patience time.Duration) {
	_ = p.cmd.Process.Signal(terminate)
	select {
	case <-p.done:
	case <-time.After(patience):
		p.kill()
	}
}

func (p *process) signal(s os.Signal) error {
	return p.cmd.Process.Signal(s)
}
