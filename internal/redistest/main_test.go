package redistest_test

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if victim := os.Getenv(victimEnv); victim != "" {
		os.Exit(m.Run()) // see reap_test.go
	}
	goleak.VerifyTestMain(m)
}

func bg(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// within fails the test when try has no success in time.
func within(t *testing.T, limit time.Duration, try func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	err := try()
	for ; err != nil && time.Now().Before(deadline); err = try() {
		<-time.After(5 * time.Millisecond)
	}
	if err != nil {
		t.Fatalf("after %v: %v", limit, err)
	}
}
