//go:build !unix

package history

import "time"

// Now is the wall clock where processes share no monotonic one.
func Now() int64 { return time.Now().UnixNano() }
