// Sqlfence shows the write that no lock can stop, and the table that refuses it: a holder stands still for longer than
// its lock lives, somebody else takes over, and then the first goes on.
//
//	go run ./examples/sqlfence                        on a Redis inside the program
//	go run ./examples/sqlfence -redis localhost:6379  on a real one
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/demo"
)

func main() { demo.Main(run) }

func run(ctx context.Context, out io.Writer, redisAddr string) error {
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr})
	defer rdb.Close()
	db, err := openStock(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, write := range []struct {
		title string
		write writeFunc
	}{
		{"A table that takes every write", writeBlindly},
		{"A table that refuses an older fence", writeFenced},
	} {
		fmt.Fprintf(out, "%s\n", write.title)
		if err := sellLate(ctx, out, rdb, db, write.write); err != nil {
			return err
		}
	}
	return nil
}

// sellLate has A sell one piece and B sell four, of ten. A reads the stock, stands still until its lock has ended and B
// has sold, and then writes what it had worked out before.
func sellLate(ctx context.Context, out io.Writer, rdb *redis.Client, db *sql.DB, write writeFunc) error {
	if _, err := db.ExecContext(ctx, `UPDATE stock SET pieces = 10, fence = 1 WHERE sku = 'lamp'`); err != nil {
		return err
	}
	a, err := hold(ctx, rdb)
	if err != nil {
		return err
	}
	defer a.close()
	left, err := read(ctx, db)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  A holds the lock, reads %d, and stands still\n", left)
	if err := a.standStill(ctx); err != nil {
		return err
	}

	b, err := hold(ctx, rdb)
	if err != nil {
		return err
	}
	defer b.close()
	if err := write(b.lease.Context(), db, b.lease, left-4); err != nil {
		return err
	}
	sold := 4
	fmt.Fprintf(out, "  B takes the lock over, sells 4 and writes %d: done\n", left-4)

	// What A is to do under its context would end here. But A has looked at it a moment before it stood still.
	err = write(ctx, db, a.lease, left-1)
	fmt.Fprintf(out, "  A goes on, sells 1 and writes %d: %s\n", left-1, outcome(err))
	if err == nil {
		sold++
	}
	if left, err = read(ctx, db); err != nil {
		return err
	}
	fmt.Fprintf(out, "  %d are sold, and the table says %d are left\n\n", sold, left)
	return nil
}

func outcome(err error) string {
	if err != nil {
		return "refused, " + err.Error()
	}
	return "done"
}

// holder is a process with a lease. It has an engine of its own, as every process has.
type holder struct {
	locks *core.Locks
	lease *core.Lease
}

func hold(ctx context.Context, rdb *redis.Client) (*holder, error) {
	locks, err := core.New(core.Redis(rdb), core.WithPrefix("sqlfence:"), core.WithTTL(300*time.Millisecond))
	if err != nil {
		return nil, err
	}
	// A process that stands still does not renew either.
	lease, err := locks.Acquire(ctx, "sku:lamp", core.WithWait(10*time.Second), core.WithoutRenewal())
	if err != nil {
		return nil, errors.Join(err, locks.Close(ctx))
	}
	return &holder{locks, lease}, nil
}

// standStill returns when the holder's lock has ended, whoever could have told it.
func (h *holder) standStill(ctx context.Context) error {
	select {
	case <-h.lease.Context().Done():
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *holder) close() {
	ctx := context.Background()
	_ = h.lease.Release(ctx)
	_ = h.locks.Close(ctx)
}
