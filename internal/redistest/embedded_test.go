package redistest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/internal/redistest"
)

func TestEmbeddedAges(t *testing.T) {
	rdb := redistest.Embedded(t)
	rdb.Set(bg(t), "key", "value", 100*time.Millisecond)
	began := time.Now()
	within(t, 5*time.Second, func() error {
		if err := rdb.Get(bg(t), "key").Err(); !errors.Is(err, redis.Nil) {
			return errors.New("is still there")
		}
		return nil
	})
	if age := time.Since(began); age < 95*time.Millisecond {
		t.Errorf("gone after %v", age)
	}
}
