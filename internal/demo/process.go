package demo

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// argsVariable tells a process that it was started by Start, and with what.
const argsVariable = "LATCHKIT_DEMO_PROCESS"

// Process is one more process of this program, as another machine would run it.
type Process struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	stdout io.Closer
	lines  *bufio.Scanner
}

// Start starts this program again. There, [Child] runs with args, none of which may contain a newline. What it writes to
// stderr goes to this one's.
func Start(args ...string) (*Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// A pipe of our own can be read to its end when the process has gone; one of exec's is closed then.
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer write.Close()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), argsVariable+"="+strings.Join(args, "\n"))
	cmd.Stdout, cmd.Stderr = write, os.Stderr
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		read.Close()
		return nil, err
	}
	return &Process{cmd, stdin, read, bufio.NewScanner(read)}, nil
}

// Line returns the next line that the process has written, and io.EOF after the last. One caller at a time.
func (p *Process) Line() (string, error) {
	if p.lines.Scan() {
		return p.lines.Text(), nil
	}
	_ = p.stdout.Close()
	if err := p.lines.Err(); err != nil {
		return "", err
	}
	return "", io.EOF
}

// Stop asks the process to end and waits until it has: 10 s, and then kills it. What it has written can still be read.
func (p *Process) Stop() error {
	defer time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() }).Stop()
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
