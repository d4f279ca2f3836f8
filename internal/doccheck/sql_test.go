package doccheck

import (
	"database/sql"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // a driver in Go alone
)

// The SQL of the page on fencing is run in SQLite, which also takes the names of types and parameters of Postgres; what
// is said of Postgres is not tested against one.
func TestFencingSQL(t *testing.T) {
	t.Parallel()
	for _, p := range allPages(t) {
		if p.name != "docs/fencing.md" {
			continue
		}
		n := 0
		for _, b := range p.blocks {
			if b.lang != "sql" {
				continue
			}
			n++
			t.Run(strings.SplitN(b.text, "\n", 2)[0], func(t *testing.T) { runSQL(t, b) })
		}
		if n < 5 {
			t.Errorf("found %d statements", n)
		}
	}
}

func runSQL(t *testing.T, b block) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection to :memory: is a database of its own
	exec := func(statement string, args ...any) int64 {
		t.Helper()
		result, err := db.ExecContext(t.Context(), statement, args...)
		if err != nil {
			t.Fatalf("%s:%d: %v", b.page, b.line, err)
		}
		n, _ := result.RowsAffected()
		return n
	}
	if strings.Contains(b.text, "CREATE TABLE") {
		exec(b.text)
		return
	}
	exec(`CREATE TABLE stock (sku TEXT PRIMARY KEY, pieces INTEGER NOT NULL, fence INTEGER NOT NULL DEFAULT 1)`)
	exec(`INSERT INTO stock VALUES ('lamp', 10, 7)`)
	for _, write := range []struct{ fence, changed int64 }{{8, 1}, {8, 1}, {7, 0}, {0, 0}, {9, 1}} {
		if n := exec(b.text, "lamp", write.fence, 5); n != write.changed {
			t.Errorf("%s:%d: a write with fence %d changed %d rows", b.page, b.line, write.fence, n)
		}
	}
}
