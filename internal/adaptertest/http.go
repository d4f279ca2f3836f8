package adaptertest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/admit"
)

// HTTP is an adapter for HTTP.
type HTTP struct {
	// Mount makes a service of the adapter's framework, with its recovery outside.
	Mount func(t *testing.T, routes ...Route) http.Handler
	// Levels at which the framework lets a middleware stand.
	Levels []Level
	// ServerErrorsElsewhere: the bodies of 5xx are an error middleware's.
	ServerErrorsElsewhere bool
}

// Level is where in the framework a middleware stands.
type Level string

// The levels.
const (
	AtRoute  Level = "route"
	AtGroup  Level = "group"
	AtRouter Level = "router"
)

// Route is a route with the adapter's middleware in front of its handler.
type Route struct {
	Level   Level // AtRoute unless set
	Method  string
	Path    string // with ":name" for parameters
	Key     Key
	Options HTTPOptions
	// Handler handles the request. An error is returned as the framework does it; net/http, which does not, answers 500.
	Handler func(w http.ResponseWriter, r *http.Request) error
}

// HTTPOptions are those of HTTP adapters.
type HTTPOptions struct {
	Options
	MaxBody int64
	Skip    func(*http.Request) bool
	OnError func(http.ResponseWriter, *http.Request, error)
	Success func(status int) bool
}

// Key is a key function, by its name.
type Key struct {
	From   string // "param", "query", "header", "cookie", "form", "json", "body", "named", "join", "custom"
	Name   string
	Of     []Key // of "named" and "join"
	Custom func(*http.Request) (string, error)
}

// Keys are the key functions of an adapter.
type Keys[K any] struct {
	Param, Query, Header, Cookie, Form, JSON func(name string) K
	BodyHash                                 func() K
	Named                                    func(name string, key K) K
	Join                                     func(keys ...K) K
	Custom                                   func(key func(*http.Request) (string, error)) K
}

// Make makes the adapter's key function for k.
func (ks Keys[K]) Make(k Key) K {
	parts := make([]K, len(k.Of))
	for i, part := range k.Of {
		parts[i] = ks.Make(part)
	}
	switch k.From {
	case "body":
		return ks.BodyHash()
	case "named":
		return ks.Named(k.Name, parts[0])
	case "join":
		return ks.Join(parts...)
	case "custom":
		return ks.Custom(k.Custom)
	default:
		return map[string]func(string) K{
			"param": ks.Param, "query": ks.Query, "header": ks.Header, "cookie": ks.Cookie, "form": ks.Form, "json": ks.JSON,
		}[k.From](k.Name)
	}
}

// OptionSet are the options of an adapter.
type OptionSet[O any] struct {
	Locker               func(core.Locker) O
	Acquire              func(...core.Option) O
	Cooldown, RetryAfter func(time.Duration) O
	PerRoute             func() O
	MaxBody              func(int64) O
	AllowDegraded        func(bool) O
	Skipper              func(func(*http.Request) bool) O
	ErrorHandler         func(func(http.ResponseWriter, *http.Request, error)) O
	Success              func(func(status int) bool) O
}

// Make makes the adapter's options for o.
func (set OptionSet[O]) Make(o HTTPOptions) []O {
	opts := []O{
		set.Acquire(o.Acquire...), set.Cooldown(o.Cooldown), set.RetryAfter(o.RetryAfter), set.AllowDegraded(!o.RefuseDegraded),
	}
	if o.Locker != nil {
		opts = append(opts, set.Locker(o.Locker))
	}
	if o.PerRoute {
		opts = append(opts, set.PerRoute())
	}
	if o.MaxBody > 0 {
		opts = append(opts, set.MaxBody(o.MaxBody))
	}
	if o.Skip != nil {
		opts = append(opts, set.Skipper(o.Skip))
	}
	if o.OnError != nil {
		opts = append(opts, set.ErrorHandler(o.OnError))
	}
	if o.Success != nil {
		opts = append(opts, set.Success(o.Success))
	}
	return opts
}

func byParam(name string) Key           { return Key{From: "param", Name: name} }
func named(name string, of Key) Key     { return Key{From: "named", Name: name, Of: []Key{of}} }
func join(of ...Key) Key                { return Key{From: "join", Of: of} }
func from(what string, name string) Key { return Key{From: what, Name: name} }

// RunHTTP runs all cases, those of Run among them, over HTTP/1.1 and HTTP/2.
func RunHTTP(t *testing.T, h HTTP) {
	quiet(t)
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(strings.ReplaceAll(proto, "/", ""), func(t *testing.T) {
			Run(t, h.adapter(proto))
			for _, c := range httpCases {
				t.Run(c.name, func(t *testing.T) { c.run(t, h, proto) })
			}
		})
	}
}

// adapter makes the neutral cases run over HTTP.
func (h HTTP) adapter(proto string) Adapter {
	return Adapter{Serve: func(t *testing.T, s Service) Call {
		var routes []Route
		for _, op := range []string{"pay", "cancel"} {
			routes = append(routes, Route{
				Method: http.MethodPost, Path: "/orders/:id/" + op, Key: named("order", byParam("id")),
				Options: HTTPOptions{Options: s.Options},
				Handler: func(w http.ResponseWriter, r *http.Request) error { return answer(w, s.Handle(r.Context(), op)) },
			})
		}
		service := start(t, proto, withDeadline(s.Deadline, h.Mount(t, routes...)))
		return func(ctx context.Context, op, id string) Answer {
			return service.do(ctx, http.MethodPost, "/orders/"+id+"/"+op, nil, nil).answer()
		}
	}}
}

func answer(w http.ResponseWriter, err error) error {
	switch {
	case err == nil:
		w.WriteHeader(http.StatusCreated)
		return nil
	case errors.Is(err, ErrFailed):
		http.Error(w, "failed", http.StatusUnprocessableEntity)
		return nil
	case errors.Is(err, context.Canceled):
		return err
	default:
		http.Error(w, "failed", http.StatusBadGateway)
		return nil
	}
}

func withDeadline(d time.Duration, next http.Handler) http.Handler {
	if d == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), d)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// service is a server on a loopback port.
type service struct {
	url    string
	client *http.Client
}

func start(t *testing.T, proto string, handler http.Handler) *service {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Proto != proto {
			t.Errorf("served over %s, want %s", r.Proto, proto)
		}
		handler.ServeHTTP(w, r)
	}))
	logged := &safeBuffer{}
	server.Config.ErrorLog = log.New(logged, "", 0)
	if proto == "HTTP/2.0" {
		server.EnableHTTP2 = true
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(func() {
		server.Close()
		if text := logged.String(); strings.Contains(text, "WriteHeader") {
			t.Errorf("the server logged: %s", text)
		}
	})
	client := server.Client()
	client.Timeout = 2 * patience
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &service{url: server.URL, client: client}
}

// reply is an answer as it came over the wire.
type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

func (s *service) do(ctx context.Context, method, target string, header http.Header, body io.Reader) reply {
	r, err := http.NewRequestWithContext(ctx, method, s.url+target, body)
	if err != nil {
		return reply{err: err}
	}
	for name, values := range header {
		r.Header[name] = values
	}
	if host := header.Get("Host"); host != "" {
		r.Host = host
	}
	res, err := s.client.Do(r)
	if err != nil {
		return reply{err: err}
	}
	defer func() { _ = res.Body.Close() }()
	content, err := io.ReadAll(res.Body)
	return reply{status: res.StatusCode, header: res.Header, body: string(content), err: err}
}

func (r reply) answer() Answer {
	a := Answer{Err: r.err}
	if s, err := strconv.Atoi(r.header.Get("Retry-After")); err == nil {
		a.RetryAfter = time.Duration(s) * time.Second
	}
	switch r.status {
	case http.StatusConflict:
		a.Row = admit.Busy
		if strings.HasSuffix(r.problem().Type, "Completed") {
			a.Row = admit.Completed
		}
	case http.StatusBadRequest:
		a.Row = admit.BadKey
	case http.StatusRequestEntityTooLarge:
		a.Row = admit.TooLarge
	case http.StatusServiceUnavailable:
		a.Row = admit.Unavailable
	case http.StatusInternalServerError:
		a.Row, a.Failed = admit.Misuse, true
	default:
		a.Failed = r.status >= http.StatusBadRequest
	}
	return a
}

type problem struct {
	Type, Title, Detail string
	Status              int
}

func (r reply) problem() (p problem) {
	_ = json.Unmarshal([]byte(r.body), &p)
	return p
}
