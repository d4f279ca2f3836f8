package grpclock

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/latchkit/latchkit/internal/admit"
)

// Field is the value of a field of the request, by its names in the .proto file with dots between them: Field("order.id")
// gives "order.id:42". It may be a string, bytes, an integer, an enum (its number) or a bool, in messages of proto2,
// proto3 or an edition, nested, and a member of a oneof.
//
// INVALID_ARGUMENT: the field, or a message on the way to it, is not set, or it is an empty string. Where the
// .proto file tracks no presence (a proto3 field that is neither optional nor in a oneof) zero and false are the same as
// not set. INTERNAL: the request's type has no such field, or it is of another kind, repeated or a map.
func Field(path string) KeyFunc {
	f := &field{path: path, what: fmt.Sprintf("field %q", path)}
	for segment := range strings.SplitSeq(path, ".") {
		name := protoreflect.Name(segment)
		if !name.IsValid() {
			panic(fmt.Sprintf(`grpclock: Field(%q): no path such as "order.id"`, path))
		}
		f.names = append(f.names, name)
	}
	return keyFunc(f)
}

type field struct {
	path  string
	what  string // for messages
	names []protoreflect.Name

	mu    sync.Mutex
	known atomic.Pointer[map[protoreflect.MessageDescriptor]*route] // copied on write
}

// route is a path resolved in one type of message.
type route struct {
	through []protoreflect.FieldDescriptor // the messages on the way
	last    protoreflect.FieldDescriptor
	err     error // the type has no such field
}

func (*field) needsMessage(string) bool { return true }

func (f *field) read(_ context.Context, _ string, req any) (name, value string, err error) {
	m, err := f.message(req)
	if err != nil {
		return "", "", err
	}
	r := f.routeIn(m.Descriptor())
	if r.err != nil {
		return "", "", r.err
	}
	for _, fd := range r.through {
		m = m.Get(fd).Message() // an empty one where none is set
	}
	// Has is false for the zero of a field without presence; an empty string may be set and is no key all the same.
	if m.Has(r.last) {
		value = text(r.last, m.Get(r.last))
	}
	if value == "" {
		return "", "", admit.Missing(f.what)
	}
	return f.path, value, nil
}

func (f *field) message(req any) (protoreflect.Message, error) {
	switch m := req.(type) {
	case proto.Message:
		return m.ProtoReflect(), nil
	case protoadapt.MessageV1:
		return protoadapt.MessageV2Of(m).ProtoReflect(), nil
	default:
		return nil, f.misuse(fmt.Sprintf("is asked of a %T, which is no protobuf message", req))
	}
}

// maxRoutes bounds the cache where descriptors are made while the server runs, as in a proxy.
const maxRoutes = 1024

// routeIn resolves the path in a type of message, once for each.
func (f *field) routeIn(d protoreflect.MessageDescriptor) *route {
	if known := f.known.Load(); known != nil {
		if r, ok := (*known)[d]; ok {
			return r
		}
	}
	r := f.resolve(d)
	f.mu.Lock()
	defer f.mu.Unlock()
	known := map[protoreflect.MessageDescriptor]*route{}
	if old := f.known.Load(); old != nil {
		if len(*old) >= maxRoutes {
			return r
		}
		maps.Copy(known, *old)
	}
	known[d] = r
	f.known.Store(&known)
	return r
}

func (f *field) resolve(d protoreflect.MessageDescriptor) *route {
	r, in := &route{}, d
	for i, name := range f.names {
		if in == nil {
			return &route{err: admit.NotDeclared(f.in(d))} // a path through what is no message
		}
		fd := in.Fields().ByName(name)
		if fd == nil {
			return &route{err: admit.NotDeclared(f.in(d))}
		}
		if fd.Cardinality() == protoreflect.Repeated {
			return &route{err: f.misuse(fmt.Sprintf("of %s is repeated, so it is no key", d.FullName()))}
		}
		if i < len(f.names)-1 {
			r.through = append(r.through, fd)
		} else {
			r.last = fd
		}
		in = fd.Message()
	}
	if !usable(r.last.Kind()) {
		return &route{err: f.misuse(fmt.Sprintf("of %s is a %v, so it is no key", d.FullName(), r.last.Kind()))}
	}
	return r
}

func (f *field) in(d protoreflect.MessageDescriptor) string {
	return f.what + " of " + string(d.FullName())
}

func (f *field) misuse(text string) error {
	return &admit.KeyError{Row: admit.Misuse, Text: f.what + " " + text}
}

func usable(kind protoreflect.Kind) bool {
	switch kind {
	case protoreflect.MessageKind, protoreflect.GroupKind, protoreflect.FloatKind, protoreflect.DoubleKind:
		return false
	}
	return true
}

func text(fd protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return v.String()
	case protoreflect.BytesKind:
		return string(v.Bytes())
	case protoreflect.BoolKind:
		return strconv.FormatBool(v.Bool())
	case protoreflect.EnumKind:
		return strconv.FormatInt(int64(v.Enum()), 10)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return strconv.FormatUint(v.Uint(), 10)
	default:
		return strconv.FormatInt(v.Int(), 10)
	}
}
