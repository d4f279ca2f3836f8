package load

import (
	"flag"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var loadDuration = flag.Duration("load.duration", 0, "the long form, holding leases for so long; 0: the short form")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// either is the size of a test in its short and in its long form.
func either(short, long int) int {
	if *loadDuration > 0 {
		return long
	}
	return short
}

func holdFor() time.Duration {
	if *loadDuration > 0 {
		return *loadDuration
	}
	return 5 * time.Second
}
