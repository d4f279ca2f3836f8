package admit

import (
	"fmt"

	"github.com/latchkit/latchkit/core"
)

// KeyError says why a request has no usable key.
type KeyError struct {
	// Row is BadKey or TooLarge for the caller's mistakes, Misuse for the programmer's.
	Row Row
	// Text says what is wrong in words that may be shown to the caller: they name what was looked for, and never
	// repeat what was found.
	Text string
	// Cause is for the log and errors.Is only; may be nil.
	Cause error
}

// Error is for logs.
func (e *KeyError) Error() string {
	if e.Cause == nil {
		return "latchkit: " + e.Text
	}
	return "latchkit: " + e.Text + ": " + e.Cause.Error()
}

// Unwrap gives the cause.
func (e *KeyError) Unwrap() error { return e.Cause }

// Is makes a caller's bad key a core.ErrInvalidKey.
func (e *KeyError) Is(target error) bool { return target == core.ErrInvalidKey && e.Row == BadKey }

// Missing says that what is absent or empty, such as `header "X-Order"`.
func Missing(what string) *KeyError {
	return &KeyError{Row: BadKey, Text: what + " is missing or empty"}
}

// Repeated says that what was given more than once, so that nobody can tell which one the handler will go by.
func Repeated(what string) *KeyError {
	return &KeyError{Row: BadKey, Text: what + " is given more than once"}
}

// Malformed says that what cannot be read, or is of the wrong type.
func Malformed(what string, cause error) *KeyError {
	return &KeyError{Row: BadKey, Text: what + " is malformed or of the wrong type", Cause: cause}
}

// TooLargeBody says that the body is over limit bytes.
func TooLargeBody(limit int64, cause error) *KeyError {
	return &KeyError{Row: TooLarge, Text: fmt.Sprintf("the body is larger than %d bytes", limit), Cause: cause}
}

// NotDeclared says that the route or message does not have what the key is to be read from: the programmer's mistake.
func NotDeclared(what string) *KeyError {
	return &KeyError{Row: Misuse, Text: what + " is not declared"}
}
