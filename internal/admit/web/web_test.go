package web

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"

	"github.com/latchkit/latchkit/internal/admit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func wantPanic(t *testing.T, what string, fn func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	fn()
}

func TestRequire(t *testing.T) {
	for what, fn := range map[string]func(){
		"empty name":        func() { RequireName("x", "") },
		"nil function":      func() { RequireFunc("x", (func())(nil)) },
		"nil interface":     func() { RequireFunc("x", nil) },
		"nil pointer":       func() { RequireFunc("x", (*int)(nil)) },
		"negative duration": func() { RequireDuration("x", -1) },
		"a long duration":   func() { RequireDuration("x", 24*time.Hour+1) },
		"no keys":           func() { RequireKeys("x", []func(){}) },
		"a nil key":         func() { RequireKeys("x", []func(){nil}) },
		"no body":           func() { RequireMaxBody(0) },
	} {
		wantPanic(t, what, fn)
	}
}

// FuzzQuery compares with net/url: where that has one value, not empty, for the name, it is ours.
func FuzzQuery(f *testing.F) {
	for _, q := range []string{"q=1", "q=1&q=2", "%71=a+b%20c", "x=%zz&q=1", "q", "q=", "a;q=1&q=2", "&&q=1&", "q=%"} {
		f.Add(q)
	}
	key := Query("q")
	f.Fuzz(func(t *testing.T, query string) {
		u := url.URL{RawQuery: query}
		got, err := key(&http.Request{URL: &u})
		all := u.Query()["q"]
		if err == nil && (len(all) != 1 || all[0] != got) {
			t.Errorf("%q: %q, net/url has %q", query, got, all)
		}
		if _, malformed := url.ParseQuery(query); err != nil && malformed == nil && len(all) == 1 && all[0] != "" {
			t.Errorf("%q: %v, net/url has %q", query, err, all)
		}
	})
}

// FuzzKey: two values are two keys, and none chooses a slot.
func FuzzKey(f *testing.F) {
	for _, s := range []string{"a", "{a}", `\(a\)`, `\`, `\\`, "{", `\{`, ""} {
		f.Add(s, `\(a\)`)
		f.Add(s, "{a}")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := admit.Key("n", a), admit.Key("n", b)
		if (a == b) != (x == y) {
			t.Errorf("%q → %q, %q → %q", a, x, b, y)
		}
		if strings.ContainsAny(x, "{}") {
			t.Errorf("%q → %q", a, x)
		}
	})
}

func TestFormParsedBefore(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/?f=query", strings.NewReader("f=body&g=1"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	if err := r.ParseForm(); err != nil {
		t.Fatal(err)
	}
	if got, err := Form("f")(r); got != "body" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// A body that is read before the lock is asked for comes to the handler as it was, with what went wrong in it.
func TestReadAhead(t *testing.T) {
	broken := errors.New("connection reset")
	large := strings.Repeat("x", 3*firstRead)
	for name, c := range map[string]struct {
		body   io.Reader
		length int64
		change func(*http.Request)
		ahead  bool // it is read at once
		want   string
		err    error
	}{
		"small":                {strings.NewReader("abc"), 3, nil, true, "abc", nil},
		"broken":               {io.MultiReader(strings.NewReader("a"), errReader{broken}), 3, nil, true, "a", broken},
		"more than was said":   {strings.NewReader(large), 3, nil, true, large, nil},
		"less than was said":   {strings.NewReader("ab"), 3, nil, true, "ab", nil},
		"large":                {strings.NewReader(large), int64(len(large)), nil, false, large, nil},
		"of unknown length":    {strings.NewReader("abc"), -1, nil, false, "abc", nil},
		"over HTTP/2":          {strings.NewReader("abc"), 3, func(r *http.Request) { r.ProtoMajor = 2 }, false, "abc", nil},
		"not asked for so far": {strings.NewReader("abc"), 3, func(r *http.Request) { r.Header.Set("Expect", "100-continue") }, false, "abc", nil},
	} {
		read := &counted{Reader: c.body}
		r := httptest.NewRequest(http.MethodPost, "/", read)
		r.ContentLength = c.length
		if c.change != nil {
			c.change(r)
		}
		readAhead(r)
		if ahead := read.n > 0; ahead != c.ahead {
			t.Errorf("%s: read ahead: %v", name, ahead)
		}
		got, err := io.ReadAll(r.Body)
		if string(got) != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %d bytes, %v; want %d, %v", name, len(got), err, len(c.want), c.err)
		}
		if err := r.Body.Close(); err != nil || read.closed != 1 {
			t.Errorf("%s: closed %d times, %v", name, read.closed, err)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Body = nil
	readAhead(r)
}

// counted counts what is read.
type counted struct {
	io.Reader
	n, closed int
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += n
	return n, err
}

func (c *counted) Close() error {
	c.closed++
	return nil
}

func TestBodyErrors(t *testing.T) {
	broken := errors.New("connection reset")
	for _, c := range []struct {
		name string
		body io.Reader
		row  admit.Row
	}{
		{"broken", io.MultiReader(strings.NewReader("a"), errReader{broken}), admit.BadKey},
		{"a cap further out", http.MaxBytesReader(nil, io.NopCloser(strings.NewReader("abc")), 2), admit.TooLarge},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", c.body)
		_, err := Body(r)
		var key *admit.KeyError
		if !errors.As(err, &key) || key.Row != c.row {
			t.Errorf("%s: %v, want row %v", c.name, err, c.row)
		}
	}
}

// TestBodyComesInPieces: however a body arrives and whatever was announced of it, all of it is read and given back.
func TestBodyComesInPieces(t *testing.T) {
	for _, size := range []int{0, 1, bytes.MinRead - 1, bytes.MinRead, bytes.MinRead + 1, firstRead, 3 * firstRead} {
		sent := bytes.Repeat([]byte("0123456789abcdef?"), size/17+1)[:size]
		for name, as := range map[string]func(io.Reader) io.Reader{
			"at once": func(r io.Reader) io.Reader { return r }, "in halves": iotest.HalfReader, "byte by byte": iotest.OneByteReader,
			"the end with the last": iotest.DataErrReader,
		} {
			for _, announced := range []int64{int64(size), -1} {
				r := httptest.NewRequest(http.MethodPost, "/", as(bytes.NewReader(sent)))
				r.ContentLength = announced
				got, err := Body(r)
				if err != nil || !bytes.Equal(got, sent) {
					t.Errorf("%d bytes, %s, announced %d: %d, %v", size, name, announced, len(got), err)
				}
				if again, err := io.ReadAll(r.Body); err != nil || !bytes.Equal(again, sent) {
					t.Errorf("%d bytes, %s, announced %d: given back %d, %v", size, name, announced, len(again), err)
				}
			}
		}
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// Caps of a middleware must not outlive its key function.
func TestCapEnds(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", DefaultMaxBody+1)))
	body := r.Body
	CapBody(r, 10)
	if _, err := Body(r); err == nil {
		t.Error("over the cap")
	}
	UncapBody(r)
	if r.Body != body {
		t.Error("the body that was not read is not put back")
	}
	CapBody(r, 2*DefaultMaxBody)
	for range 2 { // two key functions of one Join
		if data, err := Body(r); err != nil || len(data) != DefaultMaxBody+1 {
			t.Errorf("%d bytes, %v", len(data), err)
		}
	}
	UncapBody(r)
	if _, err := Body(r); err == nil {
		t.Error("the next middleware has the default cap again")
	}
	if data, err := io.ReadAll(r.Body); err != nil || len(data) != DefaultMaxBody+1 {
		t.Errorf("the handler reads %d bytes, %v", len(data), err)
	}
}

func TestSettle(t *testing.T) {
	outer := httptest.NewRequest(http.MethodPost, "/?a=1", nil)
	inner := outer.WithContext(context.Background())
	inner.Pattern = "POST /{$}"
	if err := inner.ParseForm(); err != nil {
		t.Fatal(err)
	}
	Settle(outer, inner)
	if outer.Pattern != inner.Pattern || outer.Form.Get("a") != "1" {
		t.Errorf("%q, %v", outer.Pattern, outer.Form)
	}
}

// everything is a writer with all powers.
type everything struct{ *httptest.ResponseRecorder }

func (everything) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }
func (everything) Push(string, *http.PushOptions) error         { return nil }

func (e everything) ReadFrom(r io.Reader) (int64, error) {
	e.Header().Set("Read-From", "yes")
	return io.Copy(e.ResponseRecorder, r)
}

// read returns what came by ReadFrom.
func (e everything) read() string {
	if e.Header().Get("Read-From") == "" {
		return ""
	}
	return e.Body.String()
}

func TestPowers(t *testing.T) {
	all := everything{httptest.NewRecorder()}
	plain := struct{ http.ResponseWriter }{all}
	for _, c := range []struct {
		w                http.ResponseWriter
		flushes, hijacks bool
	}{
		{plain, false, false},
		{all, true, true},
		{struct {
			http.ResponseWriter
			http.Flusher
		}{plain, all}, true, false},
		{struct {
			http.ResponseWriter
			http.Hijacker
		}{plain, all}, false, true},
	} {
		_, watched := Watch(c.w)
		_, flushes := watched.(http.Flusher)
		_, hijacks := watched.(http.Hijacker)
		if flushes != c.flushes || hijacks != c.hijacks {
			t.Errorf("%T: flushes %v, hijacks %v", c.w, flushes, hijacks)
		}
	}
	_, watched := Watch(all)
	if n, err := watched.(io.ReaderFrom).ReadFrom(strings.NewReader("abc")); n != 3 || err != nil || all.read() != "abc" {
		t.Errorf("ReadFrom of the writer within was not used: %d, %v", n, err)
	}
	if err := watched.(http.Pusher).Push("/x", nil); err != nil {
		t.Errorf("Push: %v", err)
	}
	_, watched = Watch(plain)
	if n, err := watched.(io.ReaderFrom).ReadFrom(strings.NewReader("abc")); n != 3 || err != nil {
		t.Errorf("copied %d, %v", n, err)
	}
	if err := watched.(http.Pusher).Push("/x", nil); !errors.Is(err, http.ErrNotSupported) {
		t.Errorf("Push: %v", err)
	}
}

func TestOutcome(t *testing.T) {
	for _, c := range []struct {
		name     string
		act      func(w http.ResponseWriter)
		status   int
		answered bool
	}{
		{"nothing", func(http.ResponseWriter) {}, 200, false},
		{"write", func(w http.ResponseWriter) { _, _ = w.Write(nil) }, 200, true},
		{"write string", func(w http.ResponseWriter) { _, _ = io.WriteString(w, "") }, 200, true},
		{"flush", func(w http.ResponseWriter) { w.(http.Flusher).Flush() }, 200, true},
		{"status", func(w http.ResponseWriter) { w.WriteHeader(404); _, _ = w.Write(nil) }, 404, true},
		{"early hints first", func(w http.ResponseWriter) { w.WriteHeader(103); w.WriteHeader(500) }, 500, true},
		{"twice", func(w http.ResponseWriter) { w.WriteHeader(500); w.WriteHeader(200) }, 500, true},
		{"switching protocols", func(w http.ResponseWriter) { w.WriteHeader(101) }, 101, true},
	} {
		o, w := Watch(struct {
			http.ResponseWriter
			http.Flusher
		}{httptest.NewRecorder(), httptest.NewRecorder()})
		c.act(w)
		if o.Status() != c.status || o.Answered() != c.answered {
			t.Errorf("%s: %d, %v", c.name, o.Status(), o.Answered())
		}
	}
}

// A hijack further down, which only http.ResponseController finds, must not go unnoticed.
func TestHijackBelow(t *testing.T) {
	o, w := Watch(unwrapping{everything{httptest.NewRecorder()}})
	if _, ok := w.(http.Hijacker); ok {
		t.Error("the writer within is no Hijacker")
	}
	if _, _, err := http.NewResponseController(w).Hijack(); err != nil || !o.Hijacked() || o.Status() != 0 {
		t.Errorf("%v, hijacked %v, status %d", err, o.Hijacked(), o.Status())
	}
	plain, w := Watch(struct{ http.ResponseWriter }{httptest.NewRecorder()})
	if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrNotSupported) || plain.Hijacked() {
		t.Errorf("without any: %v", err)
	}
}

type unwrapping struct{ inner http.ResponseWriter }

func (u unwrapping) Header() http.Header         { return u.inner.Header() }
func (u unwrapping) Write(b []byte) (int, error) { return u.inner.Write(b) }
func (u unwrapping) WriteHeader(s int)           { u.inner.WriteHeader(s) }
func (u unwrapping) Unwrap() http.ResponseWriter { return u.inner }
