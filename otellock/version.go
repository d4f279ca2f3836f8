package otellock

// ScopeName is the instrumentation scope of every span and metric of this package.
const ScopeName = "github.com/latchkit/latchkit/otellock"

// Version is the version of the instrumentation scope.
const Version = "0.1.0"
