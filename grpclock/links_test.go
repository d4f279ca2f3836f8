package grpclock_test

import (
	"os/exec"
	"strings"
	"testing"
)

// A user of gRPC pays for nobody else's framework.
func TestLinksNothingOfOthers(t *testing.T) {
	list, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range strings.SplitSeq(strings.TrimSpace(string(list)), "\n") {
		for _, other := range []string{"gin-gonic", "labstack", "go-chi", "opentelemetry", "gobreaker", "go-grpc-middleware",
			"latchkit/httplock", "latchkit/ginlock", "latchkit/echolock", "latchkit/otellock", "latchkit/fallback", "latchkit/internal/admit/web"} {
			if strings.Contains(pkg, other) {
				t.Errorf("grpclock links %s", pkg)
			}
		}
	}
	if !strings.Contains(string(list), "latchkit/core") {
		t.Fatalf("the list is not that of this package: %s", list)
	}
}
