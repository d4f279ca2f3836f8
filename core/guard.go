package core

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// guard is a client whose panics are errors. go-redis panics at a length that no reply can have, and a server out of its
// mind must not end the program: a batch's trip runs in a goroutine of the engine's own. The connection is thrown away
// by then.
type guard struct{ client doer }

func (g guard) Process(ctx context.Context, cmd redis.Cmder) (err error) {
	defer recovered(&err)
	return g.client.Process(ctx, cmd)
}

// recovered is deferred: it turns a panic of the client into an error.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: the client broke off: %v", ErrUnavailable, p)
	}
}
