package demo

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// argsVariable tells a process that it was started by Start, and with what.
const argsVariable = "LATCHKIT_DEMO_PROCESS"

// Process is one more process of this program, as another machine would run it.
type Process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines *bufio.Scanner
}

// Start starts this program again. There, [Child] runs with args, none of which may contain a newline. What it writes to
// stderr goes to this one's.
func Start(args ...string) (*Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), argsVariable+"="+strings.Join(args, "\n"))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &Process{cmd, stdin, bufio.NewScanner(stdout)}, cmd.Start()
}

// Line returns the next line that the process has written. One caller at a time.
func (p *Process) Line() (string, error) {
	if p.lines.Scan() {
		return p.lines.Text(), nil
	}
	if err := p.lines.Err(); err != nil {
		return "", err
	}
	return "", io.EOF
}

// Stop asks the process to end and waits until it has.
func (p *Process) Stop() error {
	_ = p.stdin.Close()
	return p.cmd.Wait()
}

// Kill ends the process at once, as a power cut would, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// Child runs serve and exits if this process was started by [Start]; otherwise it does nothing. It stands first in main,
// and in TestMain. The context of serve ends when the parent asks for it, or has died.
func Child(serve func(ctx context.Context, out io.Writer, args []string) error) {
	text, ok := os.LookupEnv(argsVariable)
	if !ok {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends with the parent, however that ends
		cancel()
	}()
	if err := serve(ctx, os.Stdout, strings.Split(text, "\n")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
