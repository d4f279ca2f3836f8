// Package mutants breaks what keeps locks safe, one thing at a time, and demands that the bench of internal/chaos, or a
// test of core, finds it. All of it is tests.
//
//	go test ./internal/mutants                          each edit still finds the place that it breaks
//	go test ./internal/mutants -v -mutants -timeout 0   each broken variant is caught
package mutants
