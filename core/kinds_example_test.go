package core_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/latchkit/latchkit/core"
)

func ExampleMultiLease_Context() {
	locks, ctx := newLocal(), context.Background()
	both, _ := core.AcquireAll(ctx, locks, []string{"account:3", "account:7"})
	locks.ForceRelease(ctx, "account:7")
	<-both.Context().Done()
	fmt.Println(errors.Is(context.Cause(both.Context()), core.ErrLost))
	// Output: true
}
