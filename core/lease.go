package core

import (
	"context"
	"fmt"
	"time"
)

// Lease is the right to work on a key until Release, or until it is lost. All methods may be called concurrently
// and on a nil Lease, which stands for a lock that was not needed.
type Lease struct {
	locks  *Locks
	hold   *hold
	key    string          // as given to Acquire
	parent context.Context // Acquire's
	outer  *Lease          // the innermost lease under which Acquire was called

	// Under hold's mutex:
	ended    bool  // Release was called, or nothing is left to release
	cause    error // why the context ended; nil while it has not
	ctx      context.Context
	cancel   context.CancelCauseFunc
	maxTimer *time.Timer
	sibling  *Lease // the next lease of the same hold
}

// Key returns the key as it was given to Acquire.
func (l *Lease) Key() string {
	if l == nil {
		return ""
	}
	return l.key
}
