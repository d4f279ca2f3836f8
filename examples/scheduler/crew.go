package main

import (
	"fmt"
	"os"
	"time"

	"github.com/latchkit/latchkit/internal/demo"
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
	process *demo.Process
	told    chan struct{} // closed when it has said all that it will
}

// hire starts a worker for each name. The crew is to be dismissed, also after an error.
func hire(redisAddr string, names ...string) (*crew, error) {
	c := &crew{workers: map[string]*worker{}, events: make(chan event, 1024)} // never full within the show
	for _, name := range names {
		process, err := demo.Start(redisAddr, fmt.Sprintf("scheduler:%d:", os.Getpid()))
		if err != nil {
			return c, err
		}
		w := &worker{process, make(chan struct{})}
		c.workers[name] = w
		go func() {
			defer close(w.told)
			for line, err := process.Line(); err == nil; line, err = process.Line() {
				c.events <- read(name, line)
			}
		}()
	}
	return c, nil
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
	delete(c.workers, name)
	w.process.Kill()
	<-w.told
}

// dismiss has all workers leave, and waits for them.
func (c *crew) dismiss() {
	for _, w := range c.workers {
		_ = w.process.Stop()
		<-w.told
	}
}
