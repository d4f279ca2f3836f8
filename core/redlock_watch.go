package core

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"
)

// gatherWakes is how long the first word of a release waits for the others: a releaser tells its nodes all at once, and a
// try that runs ahead of them meets the lock on those that have not heard yet.
const gatherWakes = time.Millisecond

// Watch implements Watcher: a release is told by any node that the releaser reaches, which is a majority at least; so a
// majority of subscriptions misses none.
func (b *redLock) Watch(ctx context.Context, key string, wake func(by, next string)) (stop func(), err error) {
	channel := companionName("wait", lockName(key))
	w := &wakes{wake: wake, quorum: b.quorum, heard: make([]bool, len(b.nodes))}
	topics, stops := make([]*topic, len(b.nodes)), make([]func(), len(b.nodes))
	for i, n := range b.nodes {
		topics[i], stops[i] = n.hub.join(channel, func(by string) { w.hear(i, by) })
	}
	stop = func() {
		w.stop()
		for _, s := range stops {
			s()
		}
	}
	if err := b.stand(ctx, topics); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// stand returns when a majority of the topics stands, or can no more.
func (b *redLock) stand(ctx context.Context, topics []*topic) error {
	cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())}}
	for _, t := range topics {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(t.ready)})
	}
	errs := []error{errNoQuorum}
	for stand := 0; stand < b.quorum; {
		i, _, _ := reflect.Select(cases)
		if i == 0 {
			return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
		}
		cases[i].Chan = reflect.Value{} // never again
		if err := b.nodes[i-1].hub.refused(topics[i-1]); err != nil {
			if errs = append(errs, err); len(errs)-1 > len(topics)-b.quorum {
				return fmt.Errorf("%w: %w", ErrUnavailable, errors.Join(errs...))
			}
			continue
		}
		stand++
	}
	return nil
}

// wakes makes one wake of what the nodes say.
type wakes struct {
	wake   func(by, next string)
	quorum int

	mu    sync.Mutex
	heard []bool
	count int
	by    string
	timer *time.Timer
	over  bool
}

func (w *wakes) hear(i int, by string) {
	w.mu.Lock()
	if w.over || w.heard[i] && w.by == by {
		w.mu.Unlock()
		return
	}
	if w.count > 0 && w.by != by {
		by = "" // several
	}
	w.by, w.heard[i] = by, true
	w.count++
	if w.count >= w.quorum {
		w.mu.Unlock()
		w.fire()
		return
	}
	if w.count == 1 {
		if w.timer == nil {
			w.timer = time.AfterFunc(gatherWakes, w.fire)
		} else {
			w.timer.Reset(gatherWakes)
		}
	}
	w.mu.Unlock()
}

func (w *wakes) fire() {
	w.mu.Lock()
	if w.over || w.count == 0 {
		w.mu.Unlock()
		return
	}
	by := w.by
	w.count = 0
	clear(w.heard)
	w.mu.Unlock()
	w.wake(by, "")
}

func (w *wakes) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.timer != nil {
		w.timer.Stop()
	}
}
