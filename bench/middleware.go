package main

import (
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/echolock"
	"github.com/latchkit/latchkit/ginlock"
	"github.com/latchkit/latchkit/grpclock"
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

	for _, framework := range frameworks {
		bare, noop, inProcess := measured(service(framework, nil)), measured(service(framework, nothing)), measured(service(framework, local))
		most := 300.0
		if framework == "grpc" {
			most = 150
		}
		s.atMost(framework+" over the bare handler, a locker that does nothing", nanos(noop)-nanos(bare), "ns", most)
		s.atMost(framework+", allocations of it", float64(noop.AllocsPerOp()-bare.AllocsPerOp()), "", 3)
		s.atMost(framework+" over the bare handler, Local()", (nanos(inProcess)-nanos(bare))/1000, "µs", 3)
	}

	const byHand = "by hand"
	s.contest(append([]string{byHand}, frameworks...), func(name string) locker {
		if name == byHand {
			return &ours{locks: locks}
		}
		return service(name, locks)
	}, load{goroutines: 1, length: 250 * time.Millisecond, servers: servers(counting), key: func(int, int) string { return "order:42" }})
	for _, framework := range frameworks {
		s.atMost(framework+" with Redis / by hand", s.report.ratio(framework, byHand, turn.perPair), "×", 1.05)
	}
}

var frameworks = []string{"gin", "echo", "net/http", "grpc"}

// service is a framework with one route or method, locked by l unless it is nil, and a request to it.
func service(framework string, l core.Locker) request {
	if framework == "grpc" {
		return call(l)
	}
	return answered(handler(framework, l), http.StatusCreated)
}

// call is a request as the code generated for a service hands it to its interceptor.
func call(l core.Locker) request {
	interceptor := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return handler(ctx, req)
	}
	if l != nil {
		interceptor = grpclock.UnaryServerInterceptor(grpclock.Named("order", grpclock.Field("value")), grpclock.WithLocker(l))
	}
	ctx, order, info := context.Background(), wrapperspb.String("42"), &grpc.UnaryServerInfo{FullMethod: "/shop.Orders/Pay"}
	pay := func(context.Context, any) (any, error) { return nil, nil }
	return func() error {
		_, err := interceptor(ctx, order, info, pay)
		return err
	}
}

func handler(framework string, l core.Locker) http.Handler {
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

// A request is a locker that takes and gives back the lock within it.
func (r request) lock(context.Context, string) (any, error) { return nil, r() }
func (request) unlock(context.Context, string, any) error   { return nil }
func (request) close()                                      {}
