package adaptertest

import (
	"os/exec"
	"strings"
	"testing"
)

// WantNoLinks wants the package under test, whose directory the test runs in, to link no package whose path begins with
// one of these: a user of one framework must not get another into the binary.
func WantNoLinks(t *testing.T, forbidden ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Skipf("cannot list packages: %v", err)
	}
	linked := strings.Fields(string(out))
	if len(linked) < 10 {
		t.Errorf("only %q", linked)
	}
	for _, path := range linked {
		for _, prefix := range forbidden {
			if path == prefix || strings.HasPrefix(path, prefix+"/") {
				t.Errorf("links %s", path)
			}
		}
	}
}

// What adapters and their users' binaries must not meet unasked.
const (
	Gin           = "github.com/gin-gonic/gin"
	Echo          = "github.com/labstack/echo"
	Chi           = "github.com/go-chi/chi"
	GRPC          = "google.golang.org/grpc"
	Protobuf      = "google.golang.org/protobuf"
	OpenTelemetry = "go.opentelemetry.io"
	Breaker       = "github.com/sony/gobreaker"
	Miniredis     = "github.com/alicebob/miniredis"
)
