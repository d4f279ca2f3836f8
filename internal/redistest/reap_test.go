package redistest_test

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/latchkit/latchkit/internal/redistest"
)

// victimEnv tells a copy of this test binary in which way to die.
const victimEnv = "REDISTEST_VICTIM"

// TestVictim does nothing unless it was started by TestServersEndWithTheirTest.
func TestVictim(t *testing.T) {
	way := os.Getenv(victimEnv)
	if way == "" {
		return
	}
	s := redistest.Start(t)
	os.Stdout.WriteString("addr " + s.Addr() + "\n")
	switch way {
	case "panic":
		panic("on purpose")
	case "panic in a goroutine": // no cleanup runs
		go panic("on purpose")
	case "exit":
		os.Exit(3)
	}
	select {} // until killed
}

func TestServersEndWithTheirTest(t *testing.T) {
	redistest.Start(t) // skips where there is no Redis
	for _, way := range []string{"panic", "panic in a goroutine", "exit", "kill"} {
		t.Run(way, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestVictim$")
			cmd.Env = append(os.Environ(), victimEnv+"="+way, "TMPDIR="+t.TempDir())
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			addr := firstAddr(t, bufio.NewScanner(out))
			if strings.HasPrefix(way, "kill") {
				_ = cmd.Process.Kill()
			}
			_ = cmd.Wait()
			within(t, 10*time.Second, func() error { return gone(addr) })
		})
	}
}

func firstAddr(t *testing.T, lines *bufio.Scanner) string {
	t.Helper()
	for lines.Scan() {
		if addr, ok := strings.CutPrefix(lines.Text(), "addr "); ok {
			return addr
		}
	}
	t.Fatal("the victim did not start its server")
	return ""
}

func gone(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil
	}
	_ = conn.Close()
	return errors.New("the server outlives its test")
}
