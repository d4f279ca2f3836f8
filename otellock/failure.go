package otellock

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/latchkit/latchkit/core"
)

// failures are the words of error.type. The first that fits counts, so the more telling come first: an ErrLost may
// wrap the ErrUnavailable that led to it.
var failures = []struct {
	err  error
	word string
}{
	{core.ErrLost, "lost"},
	{core.ErrUnavailable, "unavailable"},
	{core.ErrDenied, "denied"},
	{core.ErrConflict, "conflict"},
	{core.ErrClosed, "closed"},
	{core.ErrTooManyWaiters, "too_many_waiters"},
	{core.ErrInvalidKey, "invalid_key"},
	{core.ErrInvalidOption, "invalid_option"},
	{core.ErrNoLocker, "no_locker"},
	{core.ErrNotHeld, "not_held"},
	{core.ErrReleased, "released"},
	{core.ErrMaxHold, "max_hold"},
	{core.ErrNotAcquired, "not_acquired"},
}

// failure returns the word for err and a description of our own making. The text of err stays out: it may quote the
// key, and a server that echoes the arguments of a command it does not know would have us export the owner.
func failure(err error) (word, description string) {
	word, description = other, "latchkit: unknown error"
	for _, f := range failures {
		if errors.Is(err, f.err) {
			word, description = f.word, f.err.Error()
			break
		}
	}
	if c := cause(err); c != "" {
		description += ": " + c
	}
	return word, description
}

// cause names what lies below err in words that cannot carry a key or an owner, or returns "".
func cause(err error) string {
	var reply interface{ RedisError() }
	var errno syscall.Errno
	var network net.Error
	switch {
	case errors.As(err, &reply):
		return code(reply.(error).Error())
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &network) && network.Timeout():
		return "timeout"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return "connection closed"
	}
	return ""
}

// code returns the code that stands before the text in an error of a Redis server, such as CLUSTERDOWN.
func code(reply string) string {
	word, _, _ := strings.Cut(reply, " ")
	if len(word) > 32 || strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return ""
	}
	return word
}
