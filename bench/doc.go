// Command bench does the same work with latchkit, with other lock libraries, and with the bare commands, side by side on
// real Redis servers that it starts, and prints one table of ratios.
//
// Each scenario runs in a process of its own, under a time limit, so that a library whose waiters sleep for ever cannot
// hang the table. Within a scenario the contenders take turns of a fraction of a second, in another order each round;
// what is compared are the medians of the ratios within a round, so that a busy machine slows all alike.
//
//	go run . [-only one,many] [-rounds n] [-profile dir]
//
// results/ then holds the table, and every turn as a line for benchstat.
package main
