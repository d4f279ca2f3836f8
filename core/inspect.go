package core

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// mostHolders is how many holders Inspect tells of.
const mostHolders = 1000

//go:embed lua/inspect.lua
var inspectSource string

var inspectScript = newScript(inspectSource)

// Inspect implements Inspector. It tells of at most 1,000 holders.
func (b *redisBackend) Inspect(ctx context.Context, key string) (Info, error) {
	answer, err := b.inspect(ctx, key, "i")
	if err != nil {
		return Info{Key: key}, err
	}
	return readInfo(key, answer)
}

// ForceRelease implements Inspector. A lock of another library (a plain string with a TTL) is taken away as well; what
// is no lock is an ErrConflict.
func (b *redisBackend) ForceRelease(ctx context.Context, key string) error {
	answer, err := b.inspect(ctx, key, "f")
	if err == nil && strings.HasPrefix(answer, "X,") {
		err = fmt.Errorf("%w: %q", ErrConflict, key)
	}
	return err
}

// inspect calls lua/inspect.lua, within the trip limit.
func (b *redisBackend) inspect(ctx context.Context, key, what string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tripLimit)
	defer cancel()
	return b.ask(ctx, key, func(_, publish string) *scriptCall {
		name := lockName(key)
		c := newCall(inspectScript, 3, 3)
		c.key(name)
		c.key(companionName("wait", name))
		c.key(companionName("hold", name))
		c.arg(what)
		c.arg(publish)
		c.arg(strconv.Itoa(mostHolders))
		return c
	})
}

// readInfo reads an answer of lua/inspect.lua.
func readInfo(key, answer string) (Info, error) {
	info := Info{Key: key}
	f := fields{text: answer}
	form := f.next()
	if form == "X" {
		return info, fmt.Errorf("%w: %q", ErrConflict, key)
	}
	info.Waiters = int(f.number())
	switch form {
	case "S":
		left, count := f.milliseconds(), f.number()
		info.holdOf(f.take(f.number()), left, int(count))
	case "Z":
		for range f.number() {
			member, left := f.next(), f.milliseconds()
			entry := f.take(f.number())
			if f.bad {
				break
			}
			info.memberOf(member, entry, left)
		}
	case "N":
	default:
		f.spoil()
	}
	if f.bad {
		return Info{Key: key}, errAnswer
	}
	return info, nil
}

// holdOf tells of the string at a lock.
func (info *Info) holdOf(value string, left time.Duration, count int) {
	h := Holder{Remaining: left, Count: max(1, count)}
	rest, completed := strings.CutPrefix(value, "completed:")
	switch ours := len(value) > 33 && isOwner(value[:32]) && (value[32] == ':' || value[32] == '*'); {
	case completed:
		info.Completed = true
		h.Since, h.Label = sinceAndLabel(rest)
	case ours:
		info.Held = true
		fence, rest, _ := strings.Cut(value[33:], ":")
		h.Fence, _ = strconv.ParseInt(fence, 10, 64)
		h.Since, h.Label = sinceAndLabel(rest)
	default:
		info.Held, info.Foreign = true, true
	}
	info.Holders = []Holder{h}
}

// memberOf tells of a member of the set at a lock, and its entry in the companion. Members come by their deadline. A
// completed mark counts only when nobody holds the key any more.
func (info *Info) memberOf(member, entry string, left time.Duration) {
	h := Holder{Remaining: left, Count: 1}
	if member == "c" {
		if !info.Held {
			info.Completed = true
			h.Since, h.Label = sinceAndLabel(strings.TrimPrefix(entry, ":"))
			info.Holders = []Holder{h}
		}
		return
	}
	if info.Completed {
		info.Completed, info.Holders = false, nil
	}
	info.Held, info.Kind = true, Shared
	if strings.HasPrefix(member, "l") {
		info.Kind = Limited
	}
	fence, rest, _ := strings.Cut(strings.TrimPrefix(entry, ":"), ":")
	h.Fence, _ = strconv.ParseInt(fence, 10, 64)
	h.Since, h.Label = sinceAndLabel(rest)
	info.Holders = append(info.Holders, h)
}

// sinceAndLabel reads seconds "." microseconds ":" label [NUL note].
func sinceAndLabel(text string) (since time.Time, label string) {
	clock, label, _ := strings.Cut(text, ":")
	label, _, _ = strings.Cut(label, "\x00")
	return stamp(clock), label
}

func isOwner(text string) bool {
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(text) == 32
}
