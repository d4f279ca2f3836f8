package core

import (
	"fmt"
	"slices"
	"time"
)

// watchLimit has an open call answered soon after its limit. One timer serves all: a channel for each moment, in a select
// of each call, would be one that all of them lock. The route is locked.
func (r *route) watchLimit(limit time.Time) {
	if !r.sweepAt.IsZero() && !limit.Before(r.sweepAt) {
		return
	}
	r.sweepAt = limit
	wait := time.Until(limit) + tripGrain
	if r.sweeper == nil {
		r.sweeper = time.AfterFunc(wait, r.sweep)
		return
	}
	r.sweeper.Reset(wait)
}

// sweep answers the open calls whose limit has come.
func (r *route) sweep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.sweepAt = time.Time{}
	r.waiting = r.timely(r.waiting, now)
	for _, c := range r.waiting {
		r.watchLimit(c.limit)
	}
	for _, batch := range r.away {
		for _, c := range batch {
			switch {
			case c.gone:
			case now.Before(c.limit):
				r.watchLimit(c.limit)
			default:
				c.gone = true
				c.done <- struct{}{}
			}
		}
	}
}

// timely drops the calls whose limit has come before they were sent. The route is locked.
func (r *route) timely(waiting []*call, now time.Time) []*call {
	return slices.DeleteFunc(waiting, func(c *call) bool {
		late := !now.Before(c.limit)
		if late {
			c.op.Err = fmt.Errorf("%w: not sent within %v: %w", ErrUnavailable, tripLimit, ErrTripTimeout)
			c.op.Unsent = true
			c.done <- struct{}{}
		}
		return late
	})
}
