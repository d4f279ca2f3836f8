package admit

import (
	"sync"
	"time"
)

// outageEvery is how often an outage that goes on is logged: a line for each request would be a second outage.
const outageEvery = 10 * time.Second

// outages are those of the process: who reads its log learns of the store, not of each middleware.
var outages outage

// outage counts requests that were refused because their locks cannot be had.
type outage struct {
	mu     sync.Mutex
	logged time.Time
	since  int // refused since then
}

// count counts one at now. It returns how many there are to log, 0 for not yet.
func (o *outage) count(now time.Time) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.since++
	if now.Sub(o.logged).Abs() < outageEvery {
		return 0
	}
	n, o.logged, o.since = o.since, now, 0
	return n
}
