package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
)

// printSettings writes what the figures depend on: machine, versions, and how each contender is set up.
func printSettings(w io.Writer) {
	fmt.Fprintf(w, "%s/%s, %s, %d CPUs, %s\n", runtime.GOOS, runtime.GOARCH, cpuModel(), runtime.NumCPU(), runtime.Version())
	if text, err := exec.Command("redis-server", "--version").Output(); err == nil {
		fmt.Fprintf(w, "%s\n", strings.TrimSpace(string(text)))
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Fprintf(w, "load before the run: %s\n", strings.TrimSpace(string(load)))
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			switch m.Path {
			case "github.com/redis/go-redis/v9", "github.com/go-redsync/redsync/v4", "github.com/bsm/redislock", "github.com/redis/rueidis":
				fmt.Fprintf(w, "%s %s\n", m.Path, m.Version)
			}
		}
	}
	fmt.Fprintf(w, "every lock has a TTL of %v; medians of the rounds; ×ours is the median ratio within a round\n", ttl)
	for _, name := range []string{oursName, rawName, autoName, redislockName, redsyncName, rueidisName} {
		fmt.Fprintf(w, "  %-17s %s\n", name, peers[name].settings)
	}
}

func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown CPU"
	}
	for _, line := range strings.Split(string(text), "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown CPU"
}
