package main

import (
	"bufio"
	"context"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// counters are what a server has counted since its start.
type counters struct {
	calls   float64 // commands, those that scripts ran included
	scripts float64 // EVALSHA and EVAL
	usec    float64 // inside of scripts
	in, out float64 // bytes
	cpu     time.Duration
}

// ask reads the counters of all servers.
func ask(servers ...*redis.Client) (c counters) {
	for _, s := range servers {
		text, err := s.Info(context.Background(), "commandstats", "stats", "cpu").Result()
		check(err)
		c.read(text)
	}
	return c
}

func (c *counters) read(info string) {
	for lines := bufio.NewScanner(strings.NewReader(info)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		switch name {
		case "total_net_input_bytes":
			c.in += number(value)
		case "total_net_output_bytes":
			c.out += number(value)
		case "used_cpu_sys", "used_cpu_user":
			c.cpu += time.Duration(number(value) * float64(time.Second))
		}
		command, ok := strings.CutPrefix(name, "cmdstat_")
		if !ok || command == "info" || strings.HasPrefix(command, "client") || command == "hello" {
			continue
		}
		calls, usec := stat(value, "calls"), stat(value, "usec")
		c.calls += calls
		if command == "evalsha" || command == "eval" {
			c.scripts += calls
			c.usec += usec
		}
	}
}

func stat(value, name string) float64 {
	for _, field := range strings.Split(value, ",") {
		if text, ok := strings.CutPrefix(field, name+"="); ok {
			return number(text)
		}
	}
	return 0
}

func number(text string) float64 {
	n, _ := strconv.ParseFloat(strings.TrimSpace(text), 64)
	return n
}

// since is what was counted after before.
func (c counters) since(before counters) counters {
	return counters{c.calls - before.calls, c.scripts - before.scripts, c.usec - before.usec, c.in - before.in,
		c.out - before.out, c.cpu - before.cpu}
}

// ownCPU is what this process has used.
func ownCPU() time.Duration {
	var u syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
