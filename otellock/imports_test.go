package otellock

import (
	"go/build"
	"strings"
	"testing"
)

// The SDK is the user's choice: code outside the tests imports API packages only.
func TestNoSDKIsImported(t *testing.T) {
	pkg, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pkg.Imports {
		if strings.Contains(path, "opentelemetry.io/otel/sdk") || strings.Contains(path, "/exporters/") {
			t.Errorf("imports %s", path)
		}
	}
}
