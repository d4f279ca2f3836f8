package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
)

func TestLookup(t *testing.T) {
	nested := func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }
	for _, c := range []struct {
		body, path, want string
		err              error
	}{
		{`{"id":"a"}`, "id", "a", nil},
		{" \t\r\n{ \"id\" :\n\"a\" } \n", "id", "a", nil},
		{`{"a":{"b":{"c":1}}}`, "a.b.c", "1", nil},
		{`{"a.b":1}`, `a\.b`, "1", nil},
		{`{"a\\b":1}`, `a\\b`, "1", nil},
		{`{"x":{"id":2},"id":1}`, "id", "1", nil}, // the name deeper down is another
		{`{"id":1,"x":` + nested(maxDepth) + `}`, "id", "1", nil},
		{`{"id":1,"x":` + nested(maxDepth+10) + `}`, "id", "", errMalformed},
		{`{"id":"\u0061\n\"\\\/\b\f\r\t\ud83d\ude00"}`, "id", "a\n\"\\/\b\f\r\t😀", nil},
		{`{"\u0069d":1}`, "id", "1", nil},
		{`{"ſ":1,"s":2}`, "s", "", errRepeated}, // encoding/json folds these too
		{`{"K":1}`, "k", "1", nil},
		{`{"id":"\ufffd"}`, "id", "\ufffd", nil},
		{`{"id":"\udc00\ud800"}`, "id", "", errMalformed},
		{`{"id":"\ud800\u0061"}`, "id", "", errMalformed},
		{`{"id":"\u00g0"}`, "id", "", errMalformed},
		{`{"id":1,"x":"\u00g0"}`, "id", "", errMalformed},
		{`{"id":1,"x":"\u00e`, "id", "", errMalformed},
		{`{"id":1,"x":"\u00`, "id", "", errMalformed},
		{`{"id":"\x"}`, "id", "", errMalformed},
		{`{"id":"\`, "id", "", errMalformed},
		{"{\"id\":\"a\nb\"}", "id", "", errMalformed},
		{`{"id":1,}`, "id", "", errMalformed},
		{`{"id":1 "a":2}`, "id", "", errMalformed},
		{`{"id" 1}`, "id", "", errMalformed},
		{`{id:1}`, "id", "", errMalformed},
		{`{"id":1,"x":tru}`, "id", "", errMalformed},
		{`{"id":1,"x":[1,]}`, "id", "", errMalformed},
		{`{"id":1}x`, "id", "", errMalformed},
		{"\ufeff{\"id\":1}", "id", "", errMalformed},
		{`{"id":01}`, "id", "", errMalformed},
		{`{"id":1.}`, "id", "", errMalformed},
		{`{"id":-}`, "id", "", errMalformed},
		{`{"id":1e}`, "id", "", errMalformed},
		{`{"id":1e99999999999}`, "id", "", errMalformed},
		{`[1]`, "id", "", errType},
		{`"id"`, "id", "", errType},
		{`null`, "id", "", errAbsent},
		{`{"id":false}`, "id", "", errType},
		{``, "id", "", errAbsent},
	} {
		got, err := lookup([]byte(c.body), splitPath(c.path))
		if got != c.want || !errors.Is(err, c.err) || err != nil && c.err == nil {
			t.Errorf("%s in %.60s: %q, %v; want %q, %v", c.path, c.body, got, err, c.want, c.err)
		}
	}
}

// TestStrings: a string ends where encoding/json has it end, whatever byte stands at whatever place in it.
func TestStrings(t *testing.T) {
	for length := range 3*8 + 1 { // it is looked at in eights
		for at := range length {
			for c := range 256 {
				text := bytes.Repeat([]byte{'n'}, length) // which may follow a backslash
				text[at] = byte(c)
				s := scanner{data: slices.Concat([]byte{'"'}, text, []byte{'"'})}
				raw, escaped, err := s.str()
				if ok := err == nil && s.pos == len(s.data); ok != json.Valid(s.data) {
					t.Fatalf("%q: %v up to %d, %v", s.data, raw, s.pos, err)
				}
				if err == nil && c != '"' && (!bytes.Equal(raw, text) || escaped != (c == '\\')) {
					t.Fatalf("%q: %q, escaped %v", s.data, raw, escaped)
				}
			}
		}
	}
}

func TestJSONPathPanics(t *testing.T) {
	for _, path := range []string{"", ".", "a.", ".a", "a..b"} {
		wantPanic(t, path, func() { JSON(path) })
	}
}

func TestCanonicalNumber(t *testing.T) {
	for literal, want := range map[string]string{
		"0": "0", "-0": "0", "0.0": "0", "-0e5": "0", "42": "42", "-42": "-42", "42.0": "42", "4.2e1": "42", "420e-1": "42",
		"0.42E+2": "42", "100": "100", "1e2": "100", "1.5": "15e-1", "1.50": "15e-1", "15e-1": "15e-1", "1e100": "1e100",
		"10e99": "1e100", "12345678901234567890123": "12345678901234567890123", "0.001": "1e-3",
	} {
		if got, err := canonicalNumber([]byte(literal)); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", literal, got, err, want)
		}
	}
}

// FuzzNumber: equal numbers have one text, others have two.
func FuzzNumber(f *testing.F) {
	for _, s := range []string{"1", "1.0", "10e-1", "-0", "0.5", "123456789012345678901234567890123456789012345", "1e40", "1e41"} {
		for _, other := range []string{"1", "5e-1", "1e40", "100e38"} {
			f.Add(s, other)
		}
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, xText, ok := number(a)
		y, yText, ok2 := number(b)
		if !ok || !ok2 {
			t.Skip("one is no number, or too large to compare by value: nothing to hold the texts against")
		}
		if (x.Cmp(y) == 0) != (xText == yText) {
			t.Errorf("%s → %s, %s → %s", a, xText, b, yText)
		}
	})
}

// number reads a literal both ways, where it is small enough for the other one.
func number(literal string) (*big.Rat, string, bool) {
	s := scanner{data: []byte(literal)}
	if s.number() != nil || s.pos != len(literal) || len(literal) > 100 {
		return nil, "", false
	}
	if i := strings.IndexAny(literal, "eE"); i >= 0 && len(literal)-i > 4 {
		return nil, "", false
	}
	text, err := canonicalNumber([]byte(literal))
	value, ok := new(big.Rat).SetString(literal)
	return value, text, ok && err == nil
}

// FuzzLookup compares with encoding/json: what it takes for JSON is taken for JSON, and the value is the same.
func FuzzLookup(f *testing.F) {
	for _, s := range []string{
		`{"id":"a"}`, `{"id":1,"x":"12345678\u00e9\""}`, `{"id":1.5e3,"x":[{"id":null},true]}`, `{"ID":"\u00e9\ud83d\ude00"}`, `{"id":"a","iD":1}`, `{`, `[]`, `{"id":"\ud800"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := lookup(body, splitPath("id"))
		if err == nil && !json.Valid(body) {
			t.Fatalf("%q is no JSON, and gave %q", body, got)
		}
		if errors.Is(err, errMalformed) && json.Valid(body) && !irregular(body) {
			t.Fatalf("%q is JSON, and was refused", body)
		}
		var doc struct{ ID any }
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.UseNumber()
		if err != nil || decoder.Decode(&doc) != nil {
			return
		}
		switch id := doc.ID.(type) {
		case string:
			if got != id {
				t.Fatalf("%q gave %q, encoding/json has %q", body, got, id)
			}
		case json.Number:
			if want, err := canonicalNumber([]byte(id)); got != want || err != nil {
				t.Fatalf("%q gave %q, encoding/json has %q", body, got, id)
			}
		default:
			t.Fatalf("%q gave %q, encoding/json has %v", body, got, id)
		}
	})
}

// irregular: JSON by its grammar, and refused for another reason: no characters, or an exponent beyond all bounds.
func irregular(body []byte) bool {
	return bytes.Contains(body, []byte(`\u`)) || bytes.ContainsRune(body, '\ufffd') || !bytes.Equal(bytes.ToValidUTF8(body, nil), body) ||
		bytes.ContainsAny(body, "eE")
}

// TestBodyEncodings: a thousand random writings of one resource give one value, and of another another.
func TestBodyEncodings(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	values := map[string]string{} // value → resource
	for _, resource := range []string{"a", "b", "ab", "a b", `a"b\c/`, "é", "😀", "\x00\x1f", "42", "4.2", "{a}", "\u2028"} {
		first := ""
		for range 1000 {
			body := randomJSON(random, resource)
			got, err := lookup(body, splitPath("order.id"))
			if err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			if first == "" {
				first = got
			}
			if got != first {
				t.Fatalf("%s gave %q, another writing %q", body, got, first)
			}
		}
		if other, taken := values[first]; taken {
			t.Fatalf("%q and %q both give %q", resource, other, first)
		}
		values[first] = resource
	}
}

// randomJSON writes {"order":{"id":resource}} with members, spaces and escapes by chance.
func randomJSON(random *rand.Rand, resource string) []byte {
	space := func() string { return strings.Repeat(" ", random.IntN(2)) + strings.Repeat("\n", random.IntN(2)) }
	str := func(s string) string {
		out := `"`
		for _, r := range s {
			plain, _ := json.Marshal(string(r))
			switch {
			case random.IntN(2) == 0:
				out += string(plain[1 : len(plain)-1])
			case r > 0xffff:
				high, low := utf16.EncodeRune(r)
				out += fmt.Sprintf(`\u%04x\u%04X`, high, low)
			default:
				out += fmt.Sprintf(`\u%04x`, r)
			}
		}
		return out + `"`
	}
	object := func(members ...string) string {
		members = append(members, str("x")+":"+[]string{"null", "[1,{}]", `{"order":{"id":0}}`, "-1.5e+3"}[random.IntN(4)])
		random.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		return "{" + space() + strings.Join(members, space()+","+space()) + space() + "}"
	}
	id := str("id") + space() + ":" + space() + str(resource)
	return []byte(space() + object(str("order")+space()+":"+space()+object(id)) + space())
}

// kilobyte is a body of about 1 KB with the key in the middle.
var kilobyte = []byte(`{"customer":{"name":"Ada Lovelace","address":["12 St James's Square","London"],"vat":null},"order":{"id":4711,"paid":false},` +
	`"lines":[` + strings.Repeat(`{"sku":"AB-1234","count":3,"price":12.50,"note":"fragile \"glass\""},`, 12) + `{"sku":"Z"}]}`)

func BenchmarkJSONKilobyte(b *testing.B) {
	path := splitPath("order.id")
	b.SetBytes(int64(len(kilobyte)))
	b.ReportAllocs()
	for b.Loop() {
		if v, err := lookup(kilobyte, path); err != nil || v != "4711" {
			b.Fatal(v, err)
		}
	}
}
