package redistest

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

const (
	pollEvery  = 10 * time.Millisecond
	startLimit = 20 * time.Second // for one server, on a machine that is busy with other packages' tests
	groupLimit = 60 * time.Second // for servers that have to find one another
)

// poll calls try until it returns nil, and its last error when limit is over.
func poll(limit time.Duration, try func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %v: %w", limit, err)
		}
		time.Sleep(pollEvery)
	}
}

// mustPoll is poll for what the test cannot go on without.
func mustPoll(t testing.TB, what string, try func() error) {
	t.Helper()
	if err := poll(groupLimit, try); err != nil {
		t.Fatalf("redistest: %s: %v", what, err)
	}
}

// ping asks for one PONG on a connection of its own. A server that wants a password is up as well.
func ping(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	reply, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if strings.HasPrefix(reply, "+PONG") || strings.HasPrefix(reply, "-NOAUTH") {
		return nil
	}
	return fmt.Errorf("PING: %s", strings.TrimSpace(reply))
}
