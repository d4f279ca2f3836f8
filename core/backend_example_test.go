package core_test

import (
	"context"
	"fmt"

	"github.com/latchkit/latchkit/core"
)

// A Backend of one's own tells a store that fails from a caller that has left.
func ExampleCallerEnded() {
	ctx, cancel := context.WithCancel(context.Background())
	fmt.Println(core.CallerEnded(ctx))
	cancel()
	fmt.Println(core.CallerEnded(ctx))
	// Output:
	// <nil>
	// context canceled
}
