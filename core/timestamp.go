package core

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Timestamp returns a Backend that speaks the older protocol of SETNX and GETSET, so that services can be moved from it
// one by one. The client is as for Redis.
//
// In that protocol the key holds the time at which the lock ends, in ms since 1970 by the server's clock (TIME), and
// nothing else. It is taken with SETNX; or, when that time has passed, with GETSET, by whoever is given back the very
// time that he has read; it is freed with DEL. Our side does the same in a script, and so never loses a race that others
// may lose to one another.
//
// The protocol has no owner. Ours stands in a record beside the lock, and is good for as long as the key holds the time
// that we have put there. Whatever else is found there means that the lease is lost, also in the one case in which
// nobody has taken it: a client that read an ended lock overwrites the time of one who took it first, and learns only
// then that it came too late. So a lease can be lost for nothing while an ended lock is taken over; two holders there
// are never on our account. A lock that was deleted and taken by another with an end in the same millisecond could not
// be told from ours. Others that judge by their own clocks, or free a lock that has ended, endanger each other and us as
// they always did.
//
// Releases of others are told to nobody, so they are polled for. Holds are exclusive only, not fair. Fences grow over all
// grants of ours; those of others have none. A key that holds no time in ms is an ErrConflict, unless it is a string
// with a TTL: then it is another's lock. Our keys have a TTL, 10 s beyond the lock's end, in which it is taken over by
// comparison still; so a service that goes on to Redis finds them held, and no garbage.
func Timestamp(rdb redis.UniversalClient) Backend {
	return &timestamp{newRedis("timestamp", rdb, timestampDialect{})}
}

type timestamp struct{ *redisBackend }

// timestampGrace is for how long a lock stays after its end: those who have read it compare it within that time.
const timestampGrace = 10 * time.Second

//go:embed lua/timestamp.lua
var timestampSource string

var timestampScript = newScript(timestampSource)

// timestampDialect is that of lua/timestamp.lua, which says what goes where.
type timestampDialect struct{}

func (timestampDialect) supports(backend string, h Hold) error {
	if h.Kind != Exclusive || h.Fair || h.Join != "" {
		return fmt.Errorf("%w: the protocol of the backend %q knows exclusive holds only, in no order and of one process", ErrInvalidOption, backend)
	}
	return nil
}

func (timestampDialect) compose(ops []*Op, fence, publish string) *scriptCall {
	return composeTimestamp(ops, fence, publish, "")
}

// composeTimestamp makes the call for ops, all with the one action unless it is empty.
func composeTimestamp(ops []*Op, fence, publish, action string) *scriptCall {
	c := newCall(timestampScript, 1+3*len(ops), 4+5*len(ops))
	c.key(fence)
	for _, op := range ops {
		name := lockName(op.Key)
		c.key(name)
		c.key(companionName("stamp", name))
		c.key(companionName("wait", name))
	}
	c.arg(engineOf(ops))
	c.arg(publish)
	c.arg(waiterMillis)
	c.arg(strconv.FormatInt(timestampGrace.Milliseconds(), 10))
	for _, op := range ops {
		c.arg(cmp.Or(action, letters[actionLetter(op)]))
		c.arg(op.Owner)
		c.arg(millis(op))
		c.arg(strconv.Itoa(max(1, op.Fences)))
		c.arg(meta(op))
	}
	return c
}

func (timestampDialect) read(ops []*Op, answer string) { lockDialect{}.read(ops, answer) }

// Together implements Gatherer: no script of this protocol takes several keys or none.
func (*timestamp) Together([]string) bool { return false }

// Inspect implements Inspector.
func (b *timestamp) Inspect(ctx context.Context, key string) (Info, error) {
	info := Info{Key: key}
	answer, err := b.about(ctx, key, "i")
	if err != nil || answer == "" {
		return info, err
	}
	f := fields{text: answer}
	kind := f.next()
	switch kind {
	case "X":
		return info, fmt.Errorf("%w: %q", ErrConflict, key)
	case "R", "C", "S", "A":
	default:
		f.spoil()
	}
	holder := Holder{Remaining: f.milliseconds(), Count: 1}
	info.Waiters = int(f.number())
	info.Completed, info.Foreign = kind == "C", kind == "S"
	info.Held = kind == "R" || info.Foreign
	if kind == "R" || kind == "C" {
		holder.Fence = f.number()
		holder.Since = parseSince(f.next())
		holder.Label, _, _ = strings.Cut(strings.TrimSuffix(f.text, ";"), "\x00")
	}
	if f.bad {
		return Info{Key: key}, errAnswer
	}
	if info.Held || info.Completed {
		info.Holders = []Holder{holder}
	}
	return info, nil
}

// ForceRelease implements Inspector.
func (b *timestamp) ForceRelease(ctx context.Context, key string) error {
	answer, err := b.about(ctx, key, "d")
	if err == nil && strings.HasPrefix(answer, "X") {
		err = fmt.Errorf("%w: %q", ErrConflict, key)
	}
	return err
}

// about carries out an action that no owner asks for.
func (b *timestamp) about(ctx context.Context, key, action string) (string, error) {
	return b.ask(ctx, key, func(fence, publish string) *scriptCall {
		return composeTimestamp([]*Op{{Hold: Hold{Key: key}}}, fence, publish, action)
	})
}

// parseSince reads "seconds.microseconds".
func parseSince(text string) time.Time {
	seconds, micros, _ := strings.Cut(text, ".")
	s, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}
	}
	us, _ := strconv.ParseInt(micros, 10, 64)
	return time.Unix(s, us*1000)
}
