package core_test

import (
	"go/build"
	"strings"
	"testing"
)

// core knows no framework, no OpenTelemetry and no breaker: what it is built on is the standard library and go-redis.
func TestCoreImportsGoRedisOnly(t *testing.T) {
	pkg, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pkg.Imports {
		host, _, _ := strings.Cut(path, "/")
		if strings.Contains(host, ".") && !strings.HasPrefix(path, "github.com/redis/go-redis/v9") {
			t.Errorf("imports %s", path)
		}
	}
}
