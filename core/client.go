package core

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// doer is what the backends need of a client.
type doer interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// server is one Redis server as the backends see it.
type server struct {
	name   string // its address where there are several, else ""
	client doer
	// whole is the client with everything that a *redis.Client can do, under the same rules; nil when the given client
	// is of another kind.
	whole *redis.Client
	// subscribe returns a pub/sub connection, not dialled yet.
	subscribe func(ctx context.Context) *redis.PubSub

	// Guarded by the hub: sessions that broke in a row, until when none is opened, and why the server refuses any.
	breaks  int
	notTill time.Time
	refusal error
}

// isNil also sees a nil pointer inside the interface.
func isNil(rdb redis.UniversalClient) bool {
	if rdb == nil {
		return true
	}
	v := reflect.ValueOf(rdb)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// serverOf puts a client's connections under our rules: a context's deadline bounds the socket, a read takes no longer
// than a trip, and nothing is sent twice. A *redis.Client gives a clone that shares the pool and is never closed, but
// has lost the client's hooks, so one that obeys contexts already is used as it is. Other clients cannot be cloned: their
// trips run in a goroutine that is left behind when the context ends first. How many are, is bounded.
func serverOf(name string, rdb redis.UniversalClient) *server {
	c, ok := rdb.(*redis.Client)
	if !ok {
		return &server{name: name, client: detached{guard{rdb}, new(atomic.Int64)},
			subscribe: func(ctx context.Context) *redis.PubSub { return rdb.Subscribe(ctx) }}
	}
	if !c.Options().ContextTimeoutEnabled {
		c = c.WithTimeout(tripLimit)
		c.Options().ContextTimeoutEnabled = true
	}
	return &server{name: name, client: guard{c}, whole: c,
		subscribe: func(ctx context.Context) *redis.PubSub { return c.Subscribe(ctx) }}
}

type detached struct {
	rdb  doer
	left *atomic.Int64 // goroutines that were left behind
}

// maxLeft bounds those. A client without timeouts of its own would gather them for as long as its server hangs.
const maxLeft = 256

var errHangs = fmt.Errorf("%w: the client hangs in as many commands as are borne", redis.ErrPoolTimeout)

func (d detached) Process(ctx context.Context, cmd redis.Cmder) error {
	if d.left.Load() >= maxLeft {
		return errHangs
	}
	done, gone := make(chan error), make(chan struct{})
	go func() {
		err := d.rdb.Process(ctx, cmd)
		select {
		case done <- err:
		case <-gone:
			d.left.Add(-1)
		}
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		// The command object stays with the goroutine: nobody reads it any more.
		d.left.Add(1)
		close(gone)
		return ctx.Err()
	}
}

// once is a command that the client must not send twice: the engine retries, and knows what it may assume then.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// onceText is once for a script that answers with one string.
type onceText struct{ *redis.StringCmd }

func (onceText) NoRetry() bool { return true }

// script is a Lua script and its SHA-1, by which the server knows it.
type script struct{ source, sha string }

func newScript(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source, hex.EncodeToString(sum[:])}
}

// scriptCall is one call of a script. Calls are used again: a lock's trip should cost no more than the bare commands.
type scriptCall struct {
	script  *script
	texts   []string // what args points to, so that no string is boxed
	args    []any
	keys    int
	numKeys string
	lent    bool // a goroutine may still read it
}

// head is how many arguments stand before the keys: command, script, number of keys.
const head = 3

var (
	callPool = sync.Pool{New: func() any { return new(scriptCall) }}
	// Boxed once.
	evalsha any = "evalsha"
	eval    any = "eval"
)

// newCall returns a call of s with room for so many keys and arguments.
func newCall(s *script, keys, args int) *scriptCall {
	c := callPool.Get().(*scriptCall)
	c.script = s
	c.texts, c.args, c.keys = slices.Grow(c.texts[:0], keys+args), slices.Grow(c.args[:0], head+keys+args), 0
	c.args = c.args[:head]
	return c
}

// free gives the call back.
func (c *scriptCall) free() {
	if c.lent || cap(c.texts) > 8*maxBatch {
		return
	}
	clear(c.texts)
	clear(c.args)
	callPool.Put(c)
}

// key adds a key. All keys come before the first argument.
func (c *scriptCall) key(name string) {
	c.keys++
	c.arg(name)
}

// arg adds an argument.
func (c *scriptCall) arg(text string) {
	c.texts = append(c.texts, text) // grown before: the pointers stay good
	c.args = append(c.args, &c.texts[len(c.texts)-1])
}

// send calls the script by its hash, and with its text where the server does not know it: it did nothing then, so this
// is no retry.
func (c *scriptCall) send(ctx context.Context, client doer) (string, error) {
	answer, err := c.sendHash(ctx, client)
	if err != nil && unknownScript(err) {
		return c.sendText(ctx, client)
	}
	return answer, err
}

// sendHash calls the script by its hash.
func (c *scriptCall) sendHash(ctx context.Context, client doer) (string, error) {
	return c.process(ctx, client, c.command(ctx))
}

// sendText calls the script by its text, and the server knows it from then on.
func (c *scriptCall) sendText(ctx context.Context, client doer) (string, error) {
	c.numKeys = strconv.Itoa(c.keys)
	c.args[0], c.args[1], c.args[2] = eval, &c.script.source, &c.numKeys
	return c.process(ctx, client, c.stringCmd(ctx))
}

func (c *scriptCall) process(ctx context.Context, client doer, cmd *redis.StringCmd) (string, error) {
	_, c.lent = client.(detached)
	if err := client.Process(ctx, onceText{cmd}); err != nil {
		return "", err
	}
	return cmd.Val(), nil
}

// command returns the command that calls the script by its hash.
func (c *scriptCall) command(ctx context.Context) *redis.StringCmd {
	c.numKeys = strconv.Itoa(c.keys)
	c.args[0], c.args[1], c.args[2] = evalsha, &c.script.sha, &c.numKeys
	return c.stringCmd(ctx)
}

func (c *scriptCall) stringCmd(ctx context.Context) *redis.StringCmd {
	cmd := redis.NewStringCmd(ctx, c.args...)
	cmd.SetFirstKeyPos(head)
	return cmd
}

func unknownScript(err error) bool { return redis.HasErrorPrefix(err, "NOSCRIPT") }

// fail records err, as what it means for a lock, in op.
func fail(op *Op, err error) {
	op.Verdict = None
	op.Err, op.Unsent = classify(err)
}

// classify wraps err in what it means, and tells whether the command has certainly done nothing.
func classify(err error) (wrapped error, unsent bool) {
	switch {
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrConflict), errors.Is(err, ErrDenied):
		return err, false
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: the Redis client is closed: %w", ErrClosed, err), true
	case denied(err):
		return fmt.Errorf("%w: %w", ErrDenied, err), true
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return fmt.Errorf("%w: %w", ErrConflict, err), true
	case neverSent(err):
		return fmt.Errorf("%w: %w", ErrUnavailable, err), true
	}
	var reply redis.Error
	return fmt.Errorf("%w: %w", ErrUnavailable, err), errors.As(err, &reply) && (!scriptBroke(err) || untouched(err))
}

// untouched tells whether a server said what it says before it carries anything out. To a script's first write it says
// so as well (before Redis 7 in the midst of a sentence of its own), and then to no later one.
func untouched(err error) bool {
	for _, word := range [...]string{"READONLY", "NOREPLICAS", "MISCONF", "OOM", "MASTERDOWN", "LOADING", "BUSY", "CLUSTERDOWN",
		"TRYAGAIN", "MOVED", "ASK", "CROSSSLOT", "NOSCRIPT"} {
		if redis.HasErrorPrefix(err, word) || strings.Contains(err.Error(), ": -"+word) {
			return true
		}
	}
	return false
}

// denied tells whether the server refused for lack of rights: also when it did so to a script's command.
func denied(err error) bool {
	if redis.IsAuthError(err) || redis.IsPermissionError(err) {
		return true
	}
	text := err.Error()
	return strings.Contains(text, "NOPERM") || strings.Contains(text, "WRONGPASS") || strings.Contains(text, "NOAUTH") ||
		deniedInScript(err)
}

// deniedInScript tells whether the server refused one of a script's commands; what came before it was carried out.
func deniedInScript(err error) bool {
	text := err.Error()
	return strings.Contains(text, "ACL failure in script") || strings.Contains(text, "The user executing the script can't") ||
		strings.Contains(text, "NOPERM") && scriptBroke(err)
}

// neverSent tells whether the command did not reach a socket.
func neverSent(err error) bool {
	if errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return true
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// ofOne tells whether what failed a batch may be the fault of one operation in it, so that each is to be tried by itself.
func ofOne(err error) bool {
	return scriptBroke(err) && !untouched(err) || redis.IsPermissionError(err)
}

// scriptBroke tells whether a script failed in its midst.
func scriptBroke(err error) bool {
	return strings.Contains(err.Error(), "script:") || strings.Contains(err.Error(), "user_script") ||
		strings.Contains(err.Error(), "@user_script")
}
