package adaptertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/core/locktest"
)

var httpCases = []struct {
	name string
	run  func(t *testing.T, h HTTP, proto string)
}{
	{"keys", keys},
	{"R6 R7 R28 unusable keys", unusableKeys},
	{"R8 undeclared parameter", undeclared},
	{"R8 no route matched", unmatched},
	{"levels", levels},
	{"escaped paths", escapedPaths},
	{"trailing slash", trailingSlash},
	{"R9 handler changes the request", changedRequest},
	{"R10 form fields stay", formStays},
	{"bodies are given back whole", bodiesStay},
	{"R11 body over the cap", overCap},
	{"R13 R14 problems", problems},
	{"R22 forged headers", forged},
	{"R23 a client that goes away after it has sent a body", leavesQueueWithABody},
	{"R26 names", names},
	{"skipper", skipper},
	{"error handler", errorHandler},
	{"what success is", successSet},
	{"server-sent events", serverSentEvents},
	{"R16 websocket", websocketUpgrade},
}

// recorder is a Locker that notes the keys it is asked for.
type recorder struct {
	core.Locker
	mu   sync.Mutex
	keys []string
}

func (r *recorder) Acquire(ctx context.Context, key string, opts ...core.Option) (*core.Lease, error) {
	r.mu.Lock()
	r.keys = append(r.keys, key)
	r.mu.Unlock()
	return r.Locker.Acquire(ctx, key, opts...)
}

// take returns the keys since the last call.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := r.keys
	r.keys = nil
	return keys
}

func newRecorder(t *testing.T) *recorder { return &recorder{Locker: locktest.New(t)} }

// start starts a service with the routes; where they say no more, they are a POST that succeeds.
func (h HTTP) start(t *testing.T, proto string, routes ...Route) *service {
	t.Helper()
	for i := range routes {
		if routes[i].Handler == nil {
			routes[i].Handler = func(w http.ResponseWriter, _ *http.Request) error { return answer(w, nil) }
		}
		if routes[i].Method == "" {
			routes[i].Method = http.MethodPost
		}
	}
	return start(t, proto, h.Mount(t, routes...))
}

var (
	jsonType = http.Header{"Content-Type": {"application/json"}}
	formType = http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
)

// request is what is sent, and what is to come of it.
type request struct {
	name   string
	key    Key
	target string // "/o/42" unless set
	header http.Header
	body   string
	want   string // the key; empty: 400
}

func (h HTTP) table(t *testing.T, proto string, requests []request) {
	for _, q := range requests {
		t.Run(q.name, func(t *testing.T) {
			locker := newRecorder(t)
			ran := false
			service := h.start(t, proto, Route{Path: "/o/:id", Key: q.key, Options: HTTPOptions{Options: Options{Locker: locker}},
				Handler: func(w http.ResponseWriter, _ *http.Request) error { ran = true; return answer(w, nil) }})
			if q.target == "" {
				q.target = "/o/42"
			}
			got := service.do(t.Context(), http.MethodPost, q.target, q.header, strings.NewReader(q.body))
			keys := locker.take()
			if q.want == "" {
				if got.status != http.StatusBadRequest || ran || len(keys) != 0 {
					t.Errorf("%+v, keys %q, ran %v; want 400 and neither", got, keys, ran)
				}
				return
			}
			if got.status != http.StatusCreated || len(keys) != 1 || keys[0] != q.want {
				t.Errorf("%+v, keys %q; want %q", got, keys, q.want)
			}
		})
	}
}

func keys(t *testing.T, h HTTP, proto string) {
	id := byParam("id")
	h.table(t, proto, []request{
		{name: "param", key: id, want: "id:42"},
		{name: "named param", key: named("order", id), want: "order:42"},
		{name: "named twice", key: named("order", named("x", id)), want: "order:42"},
		{name: "a name with colons", key: named("shop:order", id), want: "shop:order:42"},
		{name: "query", key: from("query", "q"), target: "/o/42?x=1&q=a%20b", want: "q:a b"},
		{name: "query beside a malformed one", key: from("query", "q"), target: "/o/42?q=7&x=%zz&y;z", want: "q:7"},
		{name: "header", key: from("header", "idempotency-key"), header: http.Header{"Idempotency-Key": {"k:1"}}, want: "idempotency-key:k:1"},
		{name: "host", key: from("header", "Host"), header: http.Header{"Host": {"shop.example"}}, want: "Host:shop.example"},
		{name: "cookie", key: from("cookie", "session"), header: http.Header{"Cookie": {"a=b; session=s1"}}, want: "session:s1"},
		{name: "form", key: from("form", "id"), target: "/o/42?id=9", header: formType, body: "x=1&id=7", want: "id:7"},
		{name: "json", key: from("json", "order.id"), header: jsonType, body: `{"x":[{}],"order":{"id":"7"}}`, want: "order.id:7"},
		{name: "json number", key: from("json", "id"), header: jsonType, body: ` {"id" : 7.0e0 } `, want: "id:7"},
		{name: "json in another case", key: from("json", "id"), header: jsonType, body: `{"ID":7}`, want: "id:7"},
		{name: "body", key: Key{From: "body"}, body: "abc",
			want: "body:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
		{name: "R12 join", key: join(from("query", "a"), from("query", "b")), target: "/o/42?a=x:y&b=z", want: core.JoinKey("a:x:y", "b:z")},
		{name: "R12 join, other parts", key: join(from("query", "a"), from("query", "b")), target: "/o/42?a=x&b=y:z", want: core.JoinKey("a:x", "b:y:z")},
		{name: "join of one body", key: join(from("json", "a"), from("json", "b")), header: jsonType, body: `{"a":1,"b":2}`, want: core.JoinKey("a:1", "b:2")},
		{name: "named join", key: named("pair", join(id, from("query", "b"))), target: "/o/42?b=1", want: "pair:" + strings.ReplaceAll(core.JoinKey("id:42", "b:1"), `\`, `\\`)},
		{name: "braces choose no slot", key: id, target: "/o/%7Ba%7D%5C", want: `id:\(a\)\\`},
		{name: "braces in a header", key: from("header", "K"), header: http.Header{"K": {"}{x}"}}, want: `K:\)\(x\)`},
		{name: "custom", key: custom("order:{7}", nil), want: "order:{7}"},
		{name: "named custom", key: named("order", custom("{7}", nil)), want: `order:\(7\)`},
	})
}

func custom(key string, err error) Key {
	return Key{From: "custom", Custom: func(*http.Request) (string, error) { return key, err }}
}

func unusableKeys(t *testing.T, h HTTP, proto string) {
	j := func(name, body string) request {
		return request{name: "json " + name, key: from("json", "order.id"), header: jsonType, body: body}
	}
	head := func(values ...string) http.Header { return http.Header{"K": values} }
	multi := http.Header{"Content-Type": {"multipart/form-data"}}
	h.table(t, proto, []request{
		{name: "no header", key: from("header", "K")},
		{name: "empty header", key: from("header", "K"), header: head("")},
		{name: "header twice", key: from("header", "K"), header: head("1", "2")},
		{name: "header twice the same", key: from("header", "K"), header: head("1", "1")},
		{name: "no query", key: from("query", "q")},
		{name: "empty query", key: from("query", "q"), target: "/o/42?q="},
		{name: "query twice", key: from("query", "q"), target: "/o/42?q=1&q=2"},
		{name: "query twice in disguise", key: from("query", "q"), target: "/o/42?q=1&%71=2"},
		{name: "malformed query", key: from("query", "q"), target: "/o/42?q=%zz"},
		{name: "semicolon", key: from("query", "q"), target: "/o/42?q=1;q=2"},
		{name: "no cookie", key: from("cookie", "s")},
		{name: "empty cookie", key: from("cookie", "s"), header: http.Header{"Cookie": {"s="}}},
		{name: "cookie twice", key: from("cookie", "s"), header: http.Header{"Cookie": {"s=1; s=2"}}},
		{name: "form field only in the query", key: from("form", "f"), target: "/o/42?f=1", header: formType, body: "x=1"},
		{name: "form field empty", key: from("form", "f"), header: formType, body: "f="},
		{name: "form field twice", key: from("form", "f"), header: formType, body: "f=1&f=2"},
		{name: "malformed form", key: from("form", "f"), header: formType, body: "f=1&x=%zz"},
		{name: "no form", key: from("form", "f"), header: jsonType, body: "f=1"},
		{name: "no content type", key: from("form", "f"), body: "f=1"},
		{name: "multipart without boundary", key: from("form", "f"), header: multi, body: "f=1"},
		{name: "empty body", key: Key{From: "body"}},
		{name: "custom error", key: custom("", errors.New("secret"))},
		{name: "custom empty", key: custom("", nil)},
		{name: "named custom empty", key: named("n", custom("", nil))},
		{name: "half a join", key: join(byParam("id"), from("query", "q"))},
		j("absent", `{"order":{}}`), j("no parent", `{}`), j("null", `{"order":{"id":null}}`), j("null parent", `{"order":null}`),
		j("empty", `{"order":{"id":""}}`), j("bool", `{"order":{"id":true}}`), j("object", `{"order":{"id":{}}}`),
		j("array", `{"order":{"id":[1]}}`), j("array as parent", `{"order":[{"id":1}]}`), j("no body", ``),
		j("twice", `{"order":{"id":1,"id":2}}`), j("twice the same", `{"order":{"id":1,"id":1}}`),
		j("other case", `{"order":{"id":1,"ID":2}}`), j("other case of the parent", `{"Order":{"id":1},"order":{"id":1}}`),
		j("twice in disguise", `{"order":{"id":1,"\u0069d":2}}`), j("twice at the end", `{"order":{"id":1},"x":[],"order":1}`),
		j("two documents", `{"order":{"id":1}} {"order":{"id":2}}`), j("cut off", `{"order":{"id":1}`), j("no json", `order.id=1`),
		j("half a surrogate", `{"order":{"id":"\ud800"}}`), j("no UTF-8", "{\"order\":{\"id\":\"\xff\"}}"),
	})
}

func undeclared(t *testing.T, h HTTP, proto string) {
	locker := newRecorder(t)
	service := h.start(t, proto, Route{Path: "/o/:id", Key: byParam("orderID"), Options: HTTPOptions{Options: Options{Locker: locker}}})
	logged := captureLog(t)
	got := service.do(t.Context(), http.MethodPost, "/o/42", nil, nil)
	if got.status != http.StatusInternalServerError || len(locker.take()) != 0 {
		t.Errorf("%+v, want 500", got)
	}
	if strings.Contains(got.body, "orderID") {
		t.Errorf("the body tells the client of the program's mistake: %s", got.body)
	}
	if text := logged.String(); !strings.Contains(text, "orderID") {
		t.Errorf("logged %q, want the parameter", text)
	}
}

func unmatched(t *testing.T, h HTTP, proto string) {
	for _, level := range h.Levels {
		t.Run(string(level), func(t *testing.T) {
			locker := newRecorder(t)
			service := h.start(t, proto, Route{Level: level, Path: "/g/o/:id", Key: byParam("id"),
				Options: HTTPOptions{Options: Options{Locker: locker}}})
			for _, q := range []struct {
				method, target string
				status         []int
			}{
				{http.MethodPost, "/nowhere", []int{404}},
				{http.MethodPost, "/g/nowhere", []int{404}},
				{http.MethodGet, "/g/o/42", []int{404, 405}},
				{http.MethodOptions, "/g/o/42", []int{204, 404, 405}},
			} {
				got := service.do(t.Context(), q.method, q.target, nil, nil)
				ok := false
				for _, s := range q.status {
					ok = ok || got.status == s
				}
				if keys := locker.take(); !ok || len(keys) != 0 {
					t.Errorf("%s %s: %d, keys %q; want one of %v and none", q.method, q.target, got.status, keys, q.status)
				}
			}
		})
	}
}

func levels(t *testing.T, h HTTP, proto string) {
	for _, level := range h.Levels {
		for _, perRoute := range []bool{false, true} {
			locker := newRecorder(t)
			service := h.start(t, proto, Route{Level: level, Path: "/g/o/:id", Key: byParam("id"),
				Options: HTTPOptions{Options: Options{Locker: locker, PerRoute: perRoute}}})
			got := service.do(t.Context(), http.MethodPost, "/g/o/42", nil, nil)
			keys := locker.take()
			if got.status != http.StatusCreated || len(keys) != 1 {
				t.Errorf("%s: %d, keys %q", level, got.status, keys)
				continue
			}
			route := strings.NewReplacer(`\(`, ":", `\)`, "").Replace(keys[0]) // net/http writes {id}
			if want := "POST /g/o/:id id:42"; perRoute && route != want || !perRoute && keys[0] != "id:42" {
				t.Errorf("%s: key %q, per route %v", level, keys[0], perRoute)
			}
			if strings.ContainsAny(keys[0], "{}") {
				t.Errorf("%s: key %q chooses a slot", level, keys[0])
			}
		}
	}
}

func escapedPaths(t *testing.T, h HTTP, proto string) {
	locker := newRecorder(t)
	service := h.start(t, proto, Route{Path: "/o/:id", Key: byParam("id"), Options: HTTPOptions{Options: Options{Locker: locker}}})
	for target, want := range map[string]string{
		"/o/ab":           "id:ab",
		"/o/a%62":         "id:ab",
		"/o/%61%62":       "id:ab",
		"/o/a%2562":       "id:a%62",
		"/o/a%2562%62":    "id:a%62b",
		"/o/a+b":          "id:a+b",
		"/o/a+b%62":       "id:a+bb",
		"/o/a%2Bb":        "id:a+b",
		"/o/a%20b":        "id:a b",
		"/o/a%20b+%62":    "id:a b+b",
		"/o/%C3%A9":       "id:é",
		"/o/a:b@c":        "id:a:b@c",
		"/o/a%3Ab%40c":    "id:a:b@c",
		"/o/%25":          "id:%",
		"/o/%E0%A4%A":     "", // no escape at all: net/http refuses it
		"/o/x%3Fy%23%2B+": "id:x?y#++",
	} {
		got := service.do(t.Context(), http.MethodPost, target, nil, nil)
		keys := locker.take()
		if want == "" {
			if len(keys) != 0 {
				t.Errorf("%s: keys %q", target, keys)
			}
			continue
		}
		if got.status != http.StatusCreated || len(keys) != 1 || keys[0] != want {
			t.Errorf("%s: %d, keys %q, want %q", target, got.status, keys, want)
		}
	}
}

func trailingSlash(t *testing.T, h HTTP, proto string) {
	locker := newRecorder(t)
	service := h.start(t, proto, Route{Path: "/o/:id", Key: byParam("id"), Options: HTTPOptions{Options: Options{Locker: locker}}})
	got := service.do(t.Context(), http.MethodPost, "/o/42/", nil, nil)
	for _, key := range locker.take() { // where the framework takes it for the route at all
		if key != "id:42" && key != "id:42/" {
			t.Errorf("key %q", key)
		}
	}
	if got.status == http.StatusInternalServerError {
		t.Errorf("%+v", got)
	}
}

func changedRequest(t *testing.T, h HTTP, proto string) {
	locks := locktest.New(t)
	service := h.start(t, proto, Route{Path: "/o/:id", Key: from("json", "id"),
		Options: HTTPOptions{Options: Options{Locker: locks}},
		Handler: func(w http.ResponseWriter, r *http.Request) error {
			r.Body = io.NopCloser(strings.NewReader(`{"id":2}`))
			r.URL.Path, r.Method = "/o/2", http.MethodGet
			r.SetPathValue("id", "2")
			return answer(w, nil)
		}})
	if got := service.do(t.Context(), http.MethodPost, "/o/1", jsonType, strings.NewReader(`{"id":1}`)); got.status != http.StatusCreated {
		t.Errorf("%+v", got)
	}
	wantFree(t, locks, "id:1")
}

func formStays(t *testing.T, h HTTP, proto string) {
	var multi bytes.Buffer
	form := multipart.NewWriter(&multi)
	for _, field := range [][2]string{{"a", "1"}, {"id", "7"}, {"b", "2"}} {
		_ = form.WriteField(field[0], field[1])
	}
	file, _ := form.CreateFormFile("id", "id.txt") // a file is no value
	_, _ = io.WriteString(file, "8")
	_ = form.Close()
	for kind, body := range map[string]string{
		"application/x-www-form-urlencoded": "a=1&id=7&b=2",
		form.FormDataContentType():          multi.String(),
	} {
		locker := newRecorder(t)
		service := h.start(t, proto, Route{Path: "/o/:id", Key: from("form", "id"),
			Options: HTTPOptions{Options: Options{Locker: locker}},
			Handler: func(w http.ResponseWriter, r *http.Request) error {
				_, _ = io.WriteString(w, r.PostFormValue("a")+r.PostFormValue("id")+r.PostFormValue("b"))
				return nil
			}})
		got := service.do(t.Context(), http.MethodPost, "/o/1?id=9", http.Header{"Content-Type": {kind}}, strings.NewReader(body))
		if keys := locker.take(); got.body != "172" || len(keys) != 1 || keys[0] != "id:7" {
			t.Errorf("%s: %+v, keys %q", kind, got, keys)
		}
	}
}

func bodiesStay(t *testing.T, h HTTP, proto string) {
	body := `{"id":"7","filler":"` + strings.Repeat("x", 200_000) + `"}`
	for _, key := range []Key{from("json", "id"), {From: "body"}, byParam("id")} {
		service := h.start(t, proto, Route{Path: "/o/:id", Key: key,
			Options: HTTPOptions{Options: Options{Locker: locktest.New(t)}, MaxBody: 300_000},
			Handler: func(w http.ResponseWriter, r *http.Request) error {
				content, err := io.ReadAll(r.Body)
				if err != nil || string(content) != body {
					t.Errorf("%v: the handler reads %d bytes, %v; want %d", key, len(content), err, len(body))
				}
				if err := r.Body.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
				return answer(w, nil)
			}})
		for name, reader := range map[string]io.Reader{
			"known length": strings.NewReader(body),
			"chunked":      io.MultiReader(strings.NewReader(body)),
		} {
			if got := service.do(t.Context(), http.MethodPost, "/o/7", jsonType, reader); got.status != http.StatusCreated {
				t.Errorf("%v, %s: %+v", key, name, got)
			}
		}
	}
}

func overCap(t *testing.T, h HTTP, proto string) {
	fitting := `{"id":"7"}`
	for _, key := range []Key{from("json", "id"), {From: "body"}, from("form", "id")} {
		header := jsonType
		if key.From == "form" {
			header = formType
		}
		ran := false
		service := h.start(t, proto, Route{Path: "/o/:id", Key: key,
			Options: HTTPOptions{Options: Options{Locker: locktest.New(t)}, MaxBody: int64(len(fitting))},
			Handler: func(w http.ResponseWriter, _ *http.Request) error { ran = true; return answer(w, nil) }})
		for name, reader := range map[string]io.Reader{
			"known length": strings.NewReader(fitting + " "),
			"chunked":      io.MultiReader(strings.NewReader(fitting + " ")),
		} {
			if got := service.do(t.Context(), http.MethodPost, "/o/7", header, reader); got.status != http.StatusRequestEntityTooLarge || ran {
				t.Errorf("%v, %s: %+v, ran %v; want 413", key, name, got, ran)
			}
		}
		if key.From == "json" {
			if got := service.do(t.Context(), http.MethodPost, "/o/7", header, strings.NewReader(fitting)); got.status != http.StatusCreated {
				t.Errorf("a body of just the cap: %+v", got)
			}
		}
	}
	// The default cap, and a key that needs no body.
	large := strings.Repeat("x", 1<<20+1)
	for key, want := range map[string]int{"body": http.StatusRequestEntityTooLarge, "param": http.StatusCreated} {
		service := h.start(t, proto, Route{Path: "/o/:id", Key: from(key, "id"), Options: HTTPOptions{Options: Options{Locker: locktest.New(t)}},
			Handler: func(w http.ResponseWriter, r *http.Request) error {
				_, _ = io.Copy(io.Discard, r.Body)
				return answer(w, nil)
			}})
		if got := service.do(t.Context(), http.MethodPost, "/o/7", nil, strings.NewReader(large)); got.status != want {
			t.Errorf("1 MiB and a byte by %s: %d, want %d", key, got.status, want)
		}
	}
}

func problems(t *testing.T, h HTTP, proto string) {
	secret := errors.New("dial tcp 10.0.0.7:6379: secret")
	for _, c := range []struct {
		name   string
		locker core.Locker
		key    Key
		status int
		kind   string
		text   string // in the body
		retry  string
	}{
		{"busy", refusing(&core.NotAcquiredError{Key: "id:42", RetryAfter: 1500 * time.Millisecond}), byParam("id"), 409, "Busy", "this resource", "1"},
		{"completed", refusing(&core.NotAcquiredError{Key: "id:42", RetryAfter: 1500 * time.Millisecond, Completed: true}), byParam("id"), 409, "Completed", "a request for this resource", "2"},
		{"bad key", nil, from("header", "K"), 400, "Bad_key", `header \"K\" is missing`, ""},
		{"a key function's error", nil, custom("", secret), 400, "Bad_key", "", ""},
		{"unavailable", refusing(errors.Join(core.ErrUnavailable, secret)), byParam("id"), 503, "Unavailable", "", "1"},
		{"misuse", refusing(errors.Join(core.ErrConflict, secret)), byParam("id"), 500, "Internal", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			captureLog(t)
			service := h.start(t, proto, Route{Path: "/o/:id", Key: c.key, Options: HTTPOptions{Options: Options{Locker: c.locker}}})
			got := service.do(t.Context(), http.MethodPost, "/o/42", nil, nil)
			if got.status != c.status || got.header.Get("Retry-After") != c.retry {
				t.Errorf("%d, Retry-After %q; want %d, %q", got.status, got.header.Get("Retry-After"), c.status, c.retry)
			}
			if strings.Contains(got.body, "secret") || strings.Contains(got.body, "42") {
				t.Errorf("the body leaks: %s", got.body)
			}
			if c.status >= 500 && h.ServerErrorsElsewhere {
				if got.body != "" {
					t.Errorf("nobody was to write the body: %s", got.body)
				}
				return
			}
			p := got.problem()
			if kind := got.header.Get("Content-Type"); kind != "application/problem+json" {
				t.Errorf("Content-Type %q", kind)
			}
			if !strings.HasSuffix(p.Type, c.kind) || p.Title == "" || p.Status != c.status || !strings.Contains(got.body, c.text) {
				t.Errorf("problem %s", got.body)
			}
			if !json.Valid([]byte(got.body)) {
				t.Errorf("not one body: %s", got.body)
			}
		})
	}
}

func forged(t *testing.T, h HTTP, proto string) {
	locks := locktest.New(t)
	lease := hold(t, locks, "id:42")
	service := h.start(t, proto, Route{Path: "/o/:id", Key: byParam("id"), Options: HTTPOptions{Options: Options{Locker: locks}}})
	header := http.Header{}
	for _, name := range []string{"Latchkit-Owner", "X-Lock-Owner", "X-Latchkit-Owner", "Latchkit-Lease", "X-Fence", "Authorization"} {
		header.Set(name, lease.Owner())
	}
	if got := service.do(t.Context(), http.MethodPost, "/o/42", header, nil); got.status != http.StatusConflict {
		t.Errorf("%+v, want 409", got)
	}
	release(t, lease)
}

// Over HTTP/1 the server sees the client's end only when the body has been read.
func leavesQueueWithABody(t *testing.T, h HTTP, proto string) {
	for name, key := range map[string]Key{"unread": byParam("id"), "read": join(byParam("id"), from("json", "amount"))} {
		t.Run(name, func(t *testing.T) {
			locks := locktest.New(t)
			locker := &watchedLocker{Locker: locks, calls: make(chan struct{}, 1), errs: make(chan error, 1)}
			service := h.start(t, proto, Route{Path: "/o/:id", Key: key,
				Options: HTTPOptions{Options: Options{Locker: locker, Acquire: []core.Option{core.WithWait(2 * patience)}}}})
			held := "id:42"
			if name == "read" {
				held = core.JoinKey("id:42", "amount:1")
			}
			holder := hold(t, locks, held)
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				service.do(ctx, http.MethodPost, "/o/42", jsonType, strings.NewReader(`{"amount":1}`))
			}()
			wait(t, locker.calls)
			time.Sleep(20 * time.Millisecond) // it may stand in the queue by now, or not: both are right
			cancel()
			wait(t, gone)
			locker.left(t)
			release(t, holder)
		})
	}
}

func names(t *testing.T, h HTTP, proto string) {
	for _, isNamed := range []bool{false, true} {
		gate := newGate()
		running := make(chan struct{}, 2)
		wait1 := func(w http.ResponseWriter, _ *http.Request) error {
			running <- struct{}{}
			<-gate
			return answer(w, nil)
		}
		options := HTTPOptions{Options: Options{Locker: locktest.New(t)}}
		user, order := byParam("id"), byParam("id")
		if isNamed {
			user, order = named("user", user), named("order", order)
		}
		service := h.start(t, proto, Route{Path: "/users/:id", Key: user, Options: options, Handler: wait1},
			Route{Path: "/orders/:id", Key: order, Options: options, Handler: wait1})
		first := make(chan reply, 1)
		go func() { first <- service.do(t.Context(), http.MethodPost, "/users/7", nil, nil) }()
		wait(t, running)
		second := make(chan reply, 1)
		go func() { second <- service.do(t.Context(), http.MethodPost, "/orders/7", nil, nil) }()
		if isNamed {
			wait(t, running)
		} else if got := <-second; got.status != http.StatusConflict {
			t.Errorf("not named: %+v, want 409", got)
		}
		gate.open()
		<-first
		if isNamed {
			<-second
		}
	}
}

func skipper(t *testing.T, h HTTP, proto string) {
	locker := newRecorder(t)
	service := h.start(t, proto, Route{Path: "/o/:id", Key: from("header", "K"), Options: HTTPOptions{
		Options: Options{Locker: locker}, Skip: func(r *http.Request) bool { return r.URL.Query().Has("dry") },
	}})
	if got := service.do(t.Context(), http.MethodPost, "/o/42?dry", nil, nil); got.status != http.StatusCreated || len(locker.take()) != 0 {
		t.Errorf("skipped: %+v", got)
	}
	if got := service.do(t.Context(), http.MethodPost, "/o/42", nil, nil); got.status != http.StatusBadRequest {
		t.Errorf("not skipped: %+v", got)
	}
}

func errorHandler(t *testing.T, h HTTP, proto string) {
	var got error
	writes := true
	service := h.start(t, proto, Route{Path: "/o/:id", Key: byParam("id"), Options: HTTPOptions{
		Options: Options{Locker: refusing(&core.NotAcquiredError{Key: "id:42"})},
		OnError: func(w http.ResponseWriter, _ *http.Request, err error) {
			if got = err; writes {
				w.WriteHeader(http.StatusTooManyRequests)
				_, _ = io.WriteString(w, "mine")
			}
		},
	}})
	if r := service.do(t.Context(), http.MethodPost, "/o/42", nil, nil); r.status != http.StatusTooManyRequests || r.body != "mine" {
		t.Errorf("%+v", r)
	}
	if !errors.Is(got, core.ErrNotAcquired) {
		t.Errorf("the handler got %v", got)
	}
	writes = false
	if r := service.do(t.Context(), http.MethodPost, "/o/42", nil, nil); r.status != http.StatusConflict {
		t.Errorf("a handler that writes nothing: %+v, want 409", r)
	}
}

func successSet(t *testing.T, h HTTP, proto string) {
	service := h.start(t, proto, Route{Path: "/o/:id", Key: byParam("id"),
		Options: HTTPOptions{Options: Options{Locker: locktest.New(t), Cooldown: time.Minute}, Success: func(status int) bool { return status == 202 || status == 422 }},
		Handler: func(w http.ResponseWriter, r *http.Request) error {
			if r.URL.Query().Has("fail") {
				return answer(w, ErrFailed)
			}
			return answer(w, nil)
		}})
	post := func(target string) int { return service.do(t.Context(), http.MethodPost, target, nil, nil).status }
	if a, b := post("/o/1"), post("/o/1"); a != 201 || b != 201 {
		t.Errorf("201 counts as a failure here: %d, %d", a, b)
	}
	if a, b := post("/o/2?fail"), post("/o/2"); a != 422 || b != 409 {
		t.Errorf("422 counts as a success here: %d, %d", a, b)
	}
}

// quiet keeps what the cases log on purpose out of the test's output.
func quiet(t *testing.T) {
	before := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	t.Cleanup(func() { slog.SetDefault(before) })
}

// captureLog returns what is logged from now on.
func captureLog(t *testing.T) *safeBuffer {
	before, b := slog.Default(), &safeBuffer{}
	slog.SetDefault(slog.New(slog.NewTextHandler(b, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return b
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
