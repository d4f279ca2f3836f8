// Package chaos is a bench that tries to break the locks: worker processes take and use them through real servers while
// faults strike, and the histories that they leave are judged. All of it is tests.
//
//	go test ./internal/chaos                                        each fault once
//	go test ./internal/chaos -run TestChaos -chaos.duration 30m -timeout 0   random faults, also one upon the other
//	go test ./internal/chaos -run TestChaos -chaos.seed 7           again what seed 7 did
//	go test ./internal/chaos -run TestChaos/redis/flushall -v       one fault
//
// A row of the table (rows_test.go) is a fault with what must come of it. Its random choices follow the seed, which is
// printed; what the operating system makes of them does not.
package chaos
