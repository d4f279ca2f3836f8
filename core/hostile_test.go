package core_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
)

// hostile returns a client of a server that answers every command in the same words. Then it listens on, or hangs up.
func hostile(t testing.TB, reply string, hangUp bool) *redis.Client {
	rdb := redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go answer(theirs, reply, hangUp)
			return ours, nil
		},
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

func answer(conn net.Conn, reply string, hangUp bool) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for last := false; !last; {
		name, err := readCommand(r)
		if err != nil {
			return
		}
		answer := reply
		switch name {
		case "hello", "client": // else no connection stands, and no lock is asked for
			answer = "-ERR unknown command\r\n"
		default:
			last = hangUp
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
	}
}

// readCommand reads an array of bulk strings and returns the first.
func readCommand(r *bufio.Reader) (name string, err error) {
	size := func(mark byte) (int, error) {
		line, err := r.ReadString('\n')
		if err != nil || line[0] != mark {
			return 0, errors.Join(err, io.ErrUnexpectedEOF)
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := size('*')
	for i := 0; i < n && err == nil; i++ {
		var length int
		if length, err = size('$'); err != nil {
			break
		}
		arg := make([]byte, length+2)
		if _, err = io.ReadFull(r, arg); i == 0 && err == nil {
			name = strings.ToLower(string(arg[:length]))
		}
	}
	return name, err
}

// hostileReplies are no answers of the scripts. A connection that stalls in the midst of one is bounded as any is.
var hostileReplies = []string{
	"", "\r\n", "+OK\r\n", "+QUEUED\r\n", ":1\r\n", "$-1\r\n", "*0\r\n", "*-1\r\n", "$2\r\nOK\r\n", "$4\r\nG,7;\r\n",
	"$8\r\nG,0,1,0;\r\n", "$9\r\nG,-1,1,0;\r\n", "$500000\r\nG,7,1,0;\r\n", "$9223372036854775807\r\n", "$-9\r\n", "$x\r\n",
	"*1\r\n$8\r\nG,7,1,0;\r\n", "*2147483647\r\n", "*3\r\n*3\r\n*3\r\n", "%1\r\n+a\r\n+b\r\n", ">2\r\n+message\r\n+x\r\n", ">0\r\n", "|1\r\n+a\r\n+b\r\n+OK\r\n",
	"_\r\n", "#t\r\n", ",1e400\r\n", "(99999999999999999999999\r\n", "=5\r\ntxt:x\r\n", "!3\r\nERR\r\n", "-\r\n", "-ERR\r\n", "-OK\r\n",
	"HTTP/1.1 400 Bad Request\r\n\r\n", "\x00\x01\x02\x03", "-NOSCRIPT no\r\n", "-MOVED 1 127.0.0.1:1\r\n", "-ASK 1 x\r\n", "-MOVED\r\n",
}

func TestHostileReplies(t *testing.T) {
	t.Parallel()
	for _, reply := range hostileReplies {
		t.Run(strconv.Quote(reply), func(t *testing.T) {
			t.Parallel()
			againstHostile(t, reply, false, 100*time.Millisecond)
		})
	}
}

func FuzzReplies(f *testing.F) {
	for _, reply := range hostileReplies {
		f.Add(reply)
	}
	granted := regexp.MustCompile(`\$[0-9]+\r\nG,[0-9]+,[0-9]+,`)
	enormous := regexp.MustCompile(`[0-9]{7}`)
	f.Fuzz(func(t *testing.T, reply string) {
		switch {
		case granted.MatchString(reply):
			t.Skip("a grant as the script gives it: the lock is rightly had")
		case enormous.MatchString(reply):
			t.Skip("go-redis allocates what is announced, before any of it is seen here")
		}
		againstHostile(t, reply, true, 5*time.Millisecond)
	})
}

// againstHostile asks for a lock where every command is answered in the same words. None is given, in time.
func againstHostile(t *testing.T, reply string, hangUp bool, patience time.Duration) {
	client := func() *redis.Client { return hostile(t, reply, hangUp) }
	for _, b := range []core.Backend{
		core.Redis(client()),
		core.Timestamp(client()),
		core.RedLock([]redis.UniversalClient{client(), client(), client()}, core.WithNodeTimeout(50*time.Millisecond)),
	} {
		locks, err := core.New(b, core.WithTTL(10*time.Millisecond))
		if err != nil {
			continue // it was told that these are no nodes
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		began := time.Now()
		lease, err := locks.Acquire(ctx, "key", core.WithWait(time.Minute))
		if err == nil {
			t.Errorf("%s: %q gave a lease with the fence %d", b.Name(), reply, lease.Fence())
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: %q took %v", b.Name(), reply, took)
		}
		if _, err := locks.Inspect(ctx, "key"); err == nil {
			t.Errorf("%s: %q is a report", b.Name(), reply)
		}
		cancel()
		closing, cancel := context.WithTimeout(context.Background(), time.Second)
		locks.Close(closing)
		cancel()
	}
}
