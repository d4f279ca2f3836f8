package locktest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/core/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLocal(t *testing.T) {
	locktest.Run(t, func(*testing.T) core.Backend { return core.Local() })
}
