package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/echolock"
	"github.com/latchkit/latchkit/ginlock"
	"github.com/latchkit/latchkit/httplock"
)

// middleware: what the adapters add, to a bare handler and to a lock taken by hand.
func middleware(s *stage) {
	addr, counting := s.redis()
	locks := engine(addr)
	defer locks.Close(context.Background())
	local, err := core.New(core.Local())
	check(err)
	nothing := core.LockerFunc(func(context.Context, string, ...core.Option) (*core.Lease, error) { return nil, nil })
	gin.SetMode(gin.ReleaseMode)

	for _, framework := range []string{"gin", "echo", "net/http"} {
		bare := serve(service(framework, nil), http.StatusCreated)
		noop, inProcess := serve(service(framework, nothing), http.StatusCreated), serve(service(framework, local), http.StatusCreated)
		s.atMost(framework+" over the bare handler, a locker that does nothing", nanos(noop)-nanos(bare), "ns", 300)
		s.atMost(framework+", allocations of it", float64(noop.AllocsPerOp()-bare.AllocsPerOp()), "", 3)
		s.atMost(framework+" over the bare handler, Local()", (nanos(inProcess)-nanos(bare))/1000, "µs", 3)
	}

	names := []string{"by hand"}
	for _, framework := range []string{"gin", "echo", "net/http"} {
		names = append(names, framework)
	}
	s.contest(names, func(name string) locker {
		if name == "by hand" {
			return &ours{locks: locks}
		}
		return newServed(service(name, locks))
	}, load{goroutines: 1, length: 250 * time.Millisecond, servers: servers(counting), key: func(int, int) string { return "order:42" }})
	for _, framework := range names[1:] {
		s.atMost(framework+" with Redis / by hand", s.report.ratio(framework, "by hand", turn.perPair), "×", 1.05)
	}
}

// service is a framework with one route, locked by l unless it is nil.
func service(framework string, l core.Locker) http.Handler {
	switch framework {
	case "gin":
		e := gin.New()
		if l != nil {
			e.Use(ginlock.ByParam("order", ginlock.WithLocker(l)))
		}
		e.POST("/orders/:order", func(c *gin.Context) { c.Status(http.StatusCreated) })
		return e
	case "echo":
		e := echo.New()
		if l != nil {
			e.Use(echolock.ByParam("order", echolock.WithLocker(l)))
		}
		e.POST("/orders/:order", func(c echo.Context) error { return c.NoContent(http.StatusCreated) })
		return e
	}
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	if l != nil {
		h = httplock.ByParam("order", httplock.WithLocker(l))(h)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{order}", h)
	return mux
}

// served is a locker that takes and gives back the lock within one request.
type served struct {
	handler http.Handler
	w       *discard
	r       *http.Request
}

func newServed(h http.Handler) *served {
	return &served{h, &discard{header: http.Header{}}, httptest.NewRequest(http.MethodPost, "/orders/42", nil)}
}

func (s *served) lock(context.Context, string) (any, error) {
	clear(s.w.header)
	s.handler.ServeHTTP(s.w, s.r)
	if s.w.status != http.StatusCreated {
		return nil, errHeld
	}
	return nil, nil
}

func (*served) unlock(context.Context, string, any) error { return nil }
func (*served) close()                                    {}
