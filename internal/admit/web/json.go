package web

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"net/http"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/latchkit/latchkit/internal/admit"
)

// JSON reads a string or a number out of a JSON body. The path names members of objects, outermost first, with dots
// between them: "order.id". A dot or a backslash in a name is escaped by a backslash.
//
// The body is passed over once and nothing but the value is decoded. The rest is checked all the same, for two readers
// must not find two keys in one body: what is no JSON, what follows the value, and members on the path that are given
// twice, or differ only in case (encoding/json takes them for one), are refused. A number has one key however it is
// written: 42, 42.0 and 4.2e1.
func JSON(path string) Value[*http.Request] {
	RequireName("JSON", path)
	names := splitPath(path)
	what := "JSON field " + quoted(path)
	return func(r *http.Request) (string, error) {
		body, err := Body(r)
		if err != nil {
			return "", err
		}
		value, err := lookup(body, names)
		switch {
		case err == nil:
			return only(what, value)
		case errors.Is(err, errAbsent):
			return "", admit.Missing(what)
		case errors.Is(err, errRepeated):
			return "", admit.Repeated(what)
		case errors.Is(err, errType):
			return "", admit.Malformed(what, err)
		default:
			return "", admit.Malformed("the JSON body", err)
		}
	}
}

func splitPath(path string) [][]byte {
	var names [][]byte
	var name []byte
	end := func() {
		if len(name) == 0 {
			panic("latchkit: JSON(" + quoted(path) + "): a name in the path is empty")
		}
		names = append(names, name)
		name = nil
	}
	for i := 0; i < len(path); i++ {
		switch c := path[i]; {
		case c == '.':
			end()
		case c == '\\' && i+1 < len(path) && (path[i+1] == '.' || path[i+1] == '\\'):
			i++
			name = append(name, path[i])
		default:
			name = append(name, c)
		}
	}
	end()
	return names
}

var (
	errAbsent    = errors.New("absent")
	errRepeated  = errors.New("repeated")
	errType      = errors.New("neither a string nor a number")
	errMalformed = errors.New("not well formed")
)

// maxDepth is how deep values may nest: as in encoding/json.
const maxDepth = 10000

// scanner passes over one JSON text (RFC 8259). Its methods leave pos behind what they have read.
type scanner struct {
	data []byte
	pos  int
}

// lookup returns the string or number at the path.
func lookup(data []byte, path [][]byte) (string, error) {
	s := scanner{data: data}
	s.space()
	if s.pos == len(data) {
		return "", errAbsent
	}
	value, err := s.find(path)
	if err != nil {
		return "", err
	}
	s.space()
	if s.pos != len(data) {
		return "", errMalformed
	}
	return value, nil
}

// find returns the value at the path below the value that begins here, and passes over all of that.
func (s *scanner) find(path [][]byte) (string, error) {
	if len(path) == 0 {
		return s.scalar()
	}
	if s.peek() != '{' {
		return "", s.notAnObject()
	}
	value, found := "", false
	for more := !s.enter('}'); more; {
		name, err := s.name()
		if err != nil {
			return "", err
		}
		switch {
		case !bytes.EqualFold(name, path[0]):
			err = s.skip(0)
		case found:
			err = errRepeated
		default:
			found = true
			value, err = s.find(path[1:])
		}
		if err != nil {
			return "", err
		}
		if more, err = s.more('}'); err != nil {
			return "", err
		}
	}
	if !found {
		return "", errAbsent
	}
	return value, nil
}

// notAnObject says why a path cannot go on here. A null is like no value at all.
func (s *scanner) notAnObject() error {
	null := s.peek() == 'n'
	if err := s.skip(0); err != nil {
		return err
	}
	if null {
		return errAbsent
	}
	return errType
}

// scalar returns the string or number that begins here.
func (s *scanner) scalar() (string, error) {
	switch c := s.peek(); {
	case c == '"':
		raw, escaped, err := s.str()
		if err != nil {
			return "", err
		}
		if escaped {
			if raw, err = unescape(raw); err != nil {
				return "", err
			}
		}
		if !utf8.Valid(raw) {
			return "", errMalformed
		}
		return string(raw), nil
	case c == '-' || isDigit(c):
		start := s.pos
		if err := s.number(); err != nil {
			return "", err
		}
		return canonicalNumber(s.data[start:s.pos])
	default:
		return "", s.notAnObject()
	}
}

// enter passes over the opening of an object or array, and tells whether it is empty: then over all of it.
func (s *scanner) enter(end byte) (empty bool) {
	s.pos++
	s.space()
	if s.peek() != end {
		return false
	}
	s.pos++
	return true
}

// name returns the name of a member, decoded, and goes on to its value.
func (s *scanner) name() ([]byte, error) {
	name, escaped, err := s.str()
	if err != nil {
		return nil, err
	}
	if err := s.colon(); err != nil {
		return nil, err
	}
	if escaped {
		return unescape(name)
	}
	return name, nil
}

func (s *scanner) colon() error {
	s.space()
	if s.peek() != ':' {
		return errMalformed
	}
	s.pos++
	s.space()
	return nil
}

// more passes over what stands between two elements, or over the end.
func (s *scanner) more(end byte) (bool, error) {
	s.space()
	switch s.peek() {
	case ',':
		s.pos++
		s.space()
		return true, nil
	case end:
		s.pos++
		return false, nil
	default:
		return false, errMalformed
	}
}

// skip passes over any value.
func (s *scanner) skip(depth int) error {
	if depth > maxDepth {
		return errMalformed
	}
	switch s.peek() {
	case '"':
		_, _, err := s.str()
		return err
	case '{':
		return s.skipAll('}', depth)
	case '[':
		return s.skipAll(']', depth)
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return s.number()
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	default:
		return errMalformed
	}
}

// skipAll passes over an object or array.
func (s *scanner) skipAll(end byte, depth int) error {
	for more := !s.enter(end); more; {
		if end == '}' {
			if _, _, err := s.str(); err != nil {
				return err
			}
			if err := s.colon(); err != nil {
				return err
			}
		}
		err := s.skip(depth + 1)
		if err != nil {
			return err
		}
		if more, err = s.more(end); err != nil {
			return err
		}
	}
	return nil
}

// str returns what stands between the quotes of the string that begins here, and whether there are escapes in it.
func (s *scanner) str() (raw []byte, escaped bool, err error) {
	if s.peek() != '"' {
		return nil, false, errMalformed
	}
	start := s.pos + 1
	end, escaped := stringEnd(s.data, start)
	if end < 0 {
		return nil, false, errMalformed
	}
	s.pos = end + 1
	return s.data[start:end], escaped, nil
}

// stringEnd returns where the string whose text begins at i ends, -1 when it is not well formed, and whether there are
// escapes in it. It looks at eight bytes at a time.
func stringEnd(data []byte, i int) (end int, escaped bool) {
	for {
		if i+8 <= len(data) {
			n := plain(binary.LittleEndian.Uint64(data[i:]))
			if i += n; n == 8 {
				continue
			}
		}
		if i >= len(data) {
			return -1, escaped
		}
		switch c := data[i]; {
		case c == '"':
			return i, escaped
		case c == '\\':
			if i++; !isEscape(data[i:]) {
				return -1, escaped
			}
			escaped = true
		case c < ' ':
			return -1, escaped
		}
		i++
	}
}

// plain returns how many of the eight bytes of text come before the first quote, backslash or control character.
//
// The top bit of a byte is found where the byte was below the one that is taken off it. That may be wrong above the
// first such byte, which has borrowed from there; the first is what counts.
func plain(text uint64) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	quote, backslash := text^ones*'"', text^ones*'\\'
	found := ((text-ones*' ')&^text | (quote-ones)&^quote | (backslash-ones)&^backslash) & tops
	return bits.TrailingZeros64(found) / 8
}

func (s *scanner) number() error {
	if s.peek() == '-' {
		s.pos++
	}
	switch c := s.peek(); {
	case c == '0':
		s.pos++
	case isDigit(c):
		s.digits()
	default:
		return errMalformed
	}
	if s.peek() == '.' {
		s.pos++
		if s.digits() == 0 {
			return errMalformed
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		if s.digits() == 0 {
			return errMalformed
		}
	}
	return nil
}

func (s *scanner) digits() (n int) {
	for isDigit(s.peek()) {
		s.pos++
		n++
	}
	return n
}

func (s *scanner) literal(word string) error {
	if !bytes.HasPrefix(s.data[s.pos:], []byte(word)) {
		return errMalformed
	}
	s.pos += len(word)
	return nil
}

func (s *scanner) space() {
	if s.peek() <= ' ' {
		s.spaces()
	}
}

func (s *scanner) spaces() {
	for s.pos < len(s.data) && s.data[s.pos] <= ' ' {
		switch s.data[s.pos] {
		case ' ', '\n', '\t', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek returns the next byte, or 0 at the end: no JSON text has a 0 outside of strings.
func (s *scanner) peek() byte {
	if s.pos == len(s.data) {
		return 0
	}
	return s.data[s.pos]
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isEscape tells whether text begins as an escape goes on behind its backslash.
func isEscape(text []byte) bool {
	if len(text) == 0 || text[0] != 'u' {
		return len(text) > 0 && controls[text[0]] != 0
	}
	_, ok := hexRune(text[1:])
	return ok
}

// unescape decodes what stands between the quotes of a string whose escapes are well formed. Half a surrogate pair
// is no character; decoders put the same replacement for all of them, and so would make one key of many.
func unescape(raw []byte) ([]byte, error) {
	out := make([]byte, 0, len(raw))
	for len(raw) > 0 {
		c := raw[0]
		if c != '\\' {
			out = append(out, c)
			raw = raw[1:]
			continue
		}
		letter := raw[1]
		raw = raw[2:]
		if letter != 'u' {
			out = append(out, controls[letter])
			continue
		}
		char, _ := hexRune(raw)
		raw = raw[4:]
		if utf16.IsSurrogate(char) {
			low, ok := rune(0), false
			if bytes.HasPrefix(raw, []byte(`\u`)) {
				low, ok = hexRune(raw[2:])
			}
			if char = utf16.DecodeRune(char, low); !ok || char == utf8.RuneError {
				return nil, errMalformed
			}
			raw = raw[6:]
		}
		out = utf8.AppendRune(out, char)
	}
	return out, nil
}

var controls = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func hexRune(raw []byte) (rune, bool) {
	if len(raw) < 4 {
		return 0, false
	}
	var char rune
	for _, c := range raw[:4] {
		digit := strings.IndexByte("0123456789abcdef", c|0x20)
		if c < '0' || digit < 0 {
			return 0, false
		}
		char = char<<4 | rune(digit)
	}
	return char, true
}
