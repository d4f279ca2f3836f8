// Package load drives one process to the numbers that a large service reaches: leases held, waiters on one key, locks
// taken and given back. All of it is tests.
//
//	go test ./internal/load                                          the short form, a few seconds
//	go test ./internal/load -v -load.duration 5m -timeout 30m        100,000 leases for five minutes, 10,000 waiters,
//	                                                                 a million locks
package load
