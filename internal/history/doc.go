// Package history records what the holders of locks saw, in several processes on one clock, and judges it: do leases
// that have not ended overlap, do fences grow in the order of the grants, is a register behind them ever taken back, and
// are waiters in line served in their order.
//
// A hold counts from the moment in which Acquire returned it until the first of: Release is called, its last known
// deadline has passed; and of one that was lost, until its holder last saw it live, for the news may reach the file late.
// In between its holder may trust it; before and after, nobody promised anything. So whatever a judge here refuses is a
// broken promise, and no matter of measurement.
//
//	recorder, err := history.Create(path, "worker 1")  // in each process
//	holds, err := history.Read(paths...)               // afterwards, in one
//	broken := history.Overlaps(holds)
package history
