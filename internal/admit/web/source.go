package web

import (
	"errors"
	"reflect"

	"github.com/latchkit/latchkit/internal/admit"
)

// Value reads a value from a request of type C.
type Value[C comparable] = func(C) (string, error)

// Keyed makes the key function "name:value". Named can give such a one another name, any other function it cannot look
// into: a function has an identity only by its code, which all that come from here have in common, so the compiler must
// not copy it into its callers.
//
//go:noinline
func Keyed[C comparable](name string, value Value[C]) Value[C] {
	return func(request C) (string, error) {
		var nobody C
		if request == nobody {
			return "", &parts[C]{name: name, value: value}
		}
		v, err := value(request)
		if err != nil {
			return "", err
		}
		if v == "" {
			return "", admit.Missing("the value of the key " + quoted(name))
		}
		return admit.Key(name, v), nil
	}
}

// Named is Keyed under another name. The result of a key function that is not Keyed becomes the value as a whole.
func Named[C comparable](name string, key Value[C]) Value[C] {
	RequireName("Named", name)
	RequireFunc("Named", key)
	if reflect.ValueOf(key).Pointer() == reflect.ValueOf(Keyed[C]("", nil)).Pointer() {
		var nobody C
		_, err := key(nobody)
		var p *parts[C]
		if errors.As(err, &p) {
			return Keyed(name, p.value)
		}
	}
	return Keyed(name, key)
}

// parts is how a Keyed function answers a request from nobody.
type parts[C comparable] struct {
	name  string
	value Value[C]
}

func (p *parts[C]) Error() string { return "latchkit: no request to read " + quoted(p.name) + " from" }
