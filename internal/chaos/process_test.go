package chaos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// worker is a process that runs order.
type worker struct {
	order
	t      testing.TB
	cmd    *exec.Cmd
	in     io.WriteCloser
	said   bytes.Buffer // on standard error
	done   chan struct{}
	killed bool

	mu      sync.Mutex
	reports []report
}

// report is what a worker tells of a hold that it has finished.
type report struct {
	key      string
	fence    int64
	degraded bool
}

func (r report) String() string { return fmt.Sprint(r.key, " ", r.fence, " ", r.degraded) }

// listen takes down what the worker reports, a line each, until it ends.
func (w *worker) listen(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var r report
		fmt.Sscan(lines.Text(), &r.key, &r.fence, &r.degraded)
		w.mu.Lock()
		w.reports = append(w.reports, r)
		w.mu.Unlock()
	}
}

// finished is how many holds the worker has finished.
func (w *worker) finished() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.reports)
}

// has tells whether the worker has finished such a hold.
func (w *worker) has(such func(report) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.reports, such)
}

func (w *worker) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// startWorker runs o in a process that ends with this one.
func startWorker(t testing.TB, o order) *worker {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{order: o, t: t, cmd: exec.Command(exe), done: make(chan struct{})}
	w.cmd.Env = append(os.Environ(), workerEnv+"=1", "GORACE=halt_on_error=1")
	w.cmd.Stderr = &w.said
	w.cmd.SysProcAttr = tied()
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	started := make(chan error)
	go func() {
		// Linux takes the end of the thread that started a process for the end of its parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := w.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		w.listen(out)
		_ = w.cmd.Wait()
		close(w.done)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.cmd.Process.Kill()
		<-w.done
	})
	text, _ := json.Marshal(o)
	if _, err := w.in.Write(append(text, '\n')); err != nil {
		t.Fatal(err)
	}
	return w
}

// freeze stops the process where it stands; thaw lets it go on.
func (w *worker) freeze() { w.signal(syscall.SIGSTOP) }
func (w *worker) thaw()   { w.signal(syscall.SIGCONT) }

func (w *worker) signal(s os.Signal) {
	w.t.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		w.t.Fatalf("%s: %v: %v", w.Process, s, err)
	}
}

// kill ends the process at once.
func (w *worker) kill() {
	w.killed = true
	w.signal(syscall.SIGKILL)
	<-w.done
}

// stop lets the workers come to an end, all at once. One that does not is made to say where it hangs.
func stop(t testing.TB, workers []*worker) {
	t.Helper()
	for _, w := range workers {
		if !w.killed {
			_ = w.in.Close()
		}
	}
	var all sync.WaitGroup
	for _, w := range workers {
		all.Go(func() {
			select {
			case <-w.done:
			case <-time.After(patience):
				_ = w.cmd.Process.Signal(syscall.SIGQUIT)
				<-w.done
			}
		})
	}
	all.Wait()
	for _, w := range workers {
		if !w.killed && !w.cmd.ProcessState.Success() {
			t.Errorf("%s: %v\n%s", w.Process, w.cmd.ProcessState, w.said.String())
		}
	}
}
