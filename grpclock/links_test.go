package grpclock_test

import (
	"testing"

	"github.com/latchkit/latchkit/internal/adaptertest"
)

// An adapter costs its user one import.
func TestLinks(t *testing.T) {
	adaptertest.WantNoLinks(t, adaptertest.Gin, adaptertest.Echo, adaptertest.Chi, adaptertest.OpenTelemetry,
		adaptertest.Breaker, adaptertest.Miniredis, "testing", "github.com/grpc-ecosystem/go-grpc-middleware",
		"github.com/latchkit/latchkit/httplock", "github.com/latchkit/latchkit/internal/admit/web")
}
