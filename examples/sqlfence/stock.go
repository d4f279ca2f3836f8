package main

import (
	"context"
	"database/sql"
	"errors"

	_ "modernc.org/sqlite" // a driver in Go alone

	"github.com/latchkit/latchkit/core"
)

// openStock returns a database in memory with ten lamps in it. The fence starts at 1, so that a lease without one never
// writes.
func openStock(ctx context.Context) (*sql.DB, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // each connection to :memory: is a database of its own
	_, err = db.ExecContext(ctx, `
		CREATE TABLE stock (
			sku    TEXT    PRIMARY KEY,
			pieces INTEGER NOT NULL CHECK (pieces >= 0),
			fence  INTEGER NOT NULL DEFAULT 1
		);
		INSERT INTO stock (sku, pieces) VALUES ('lamp', 10)`)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func read(ctx context.Context, db *sql.DB) (pieces int, err error) {
	err = db.QueryRowContext(ctx, `SELECT pieces FROM stock WHERE sku = 'lamp'`).Scan(&pieces)
	return pieces, err
}

// writeFunc writes the stock on behalf of the holder of lease.
type writeFunc func(ctx context.Context, db *sql.DB, lease *core.Lease, pieces int) error

func writeBlindly(ctx context.Context, db *sql.DB, _ *core.Lease, pieces int) error {
	_, err := db.ExecContext(ctx, `UPDATE stock SET pieces = ?1 WHERE sku = 'lamp'`, pieces)
	return err
}

var errOlderFence = errors.New("a later holder has written")

// writeFenced compares and writes in one statement. In Postgres it is the same, with $1 and $2.
func writeFenced(ctx context.Context, db *sql.DB, lease *core.Lease, pieces int) error {
	result, err := db.ExecContext(ctx,
		`UPDATE stock SET pieces = ?1, fence = ?2 WHERE sku = 'lamp' AND fence <= ?2`, pieces, lease.Fence())
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(errOlderFence, err)
	}
	return nil
}
