package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// crew are the workers, each a process of its own.
type crew struct {
	workers map[string]*worker
	events  chan event
}

// event is what a worker told.
type event struct {
	who    string
	at     time.Time
	what   string
	number int64
}

type worker struct {
	process *os.Process
	stdin   io.Closer // it leaves when this is closed
	gone    chan struct{}
}

// hire starts a worker for each name. The crew is to be dismissed, also after an error.
func hire(ctx context.Context, addr string, names ...string) (*crew, error) {
	c := &crew{workers: map[string]*worker{}, events: make(chan event, 1024)} // never full within the show
	self, err := os.Executable()
	if err != nil {
		return c, err
	}
	env := append(os.Environ(), fmt.Sprintf("%s=%s scheduler:%d:", workerEnv, addr, os.Getpid()))
	for _, name := range names {
		cmd := exec.CommandContext(ctx, self)
		cmd.Env, cmd.Stderr = env, os.Stderr
		if err := c.start(name, cmd); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *crew) start(name string, cmd *exec.Cmd) error {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	w := &worker{cmd.Process, stdin, make(chan struct{})}
	c.workers[name] = w
	go func() {
		defer close(w.gone)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			c.events <- read(name, lines.Text())
		}
		_ = cmd.Wait() // a killed one has failed
	}()
	return nil
}

// read reads a line: a word and a number, else it is an error's text.
func read(who, line string) event {
	e := event{who: who, at: time.Now()}
	if n, err := fmt.Sscanf(line, "%s %d", &e.what, &e.number); n < 2 || err != nil {
		e.what = line
	}
	return e
}

// kill ends a worker without a chance to say good-bye. All that it has told is in events afterwards.
func (c *crew) kill(name string) {
	w := c.workers[name]
	_ = w.process.Kill()
	<-w.gone
}

// dismiss has all workers leave, and waits for them.
func (c *crew) dismiss() {
	var wg sync.WaitGroup
	for _, w := range c.workers {
		wg.Go(func() {
			_ = w.stdin.Close()
			select {
			case <-w.gone:
			case <-time.After(5 * time.Second):
				_ = w.process.Kill()
				<-w.gone
			}
		})
	}
	wg.Wait()
}
