package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/ginlock"
)

// refused: what it costs to turn a duplicate away.
func refused(s *stage) {
	addr, counting := s.redis()
	ctx := context.Background()
	locks, elsewhere := engine(addr), engine(addr)
	defer locks.Close(ctx)
	defer elsewhere.Close(ctx)
	lease, err := locks.Acquire(ctx, "order:42")
	check(err)
	defer lease.Release(ctx)

	before := ask(counting)
	inCore := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := locks.Acquire(ctx, "order:42"); !errors.Is(err, core.ErrNotAcquired) {
				panic(err)
			}
		}
	})
	gin.SetMode(gin.ReleaseMode)
	through := gin.New()
	through.POST("/orders/:order", ginlock.ByParam("order", ginlock.WithLocker(locks)), func(c *gin.Context) { panic("it ran") })
	bare := gin.New()
	bare.POST("/orders/:order", func(c *gin.Context) { c.Status(http.StatusConflict) })
	inGin, inBare := measured(answered(through, http.StatusConflict)), measured(answered(bare, http.StatusConflict))
	commands := ask(counting).since(before).calls

	// Now by another process: nothing of its own stands in the way of elsewhere.
	before = ask(counting)
	const refusals = 2000
	for range refusals {
		if _, err := elsewhere.Acquire(ctx, "order:42"); !errors.Is(err, core.ErrNotAcquired) {
			panic(err)
		}
	}
	trips := ask(counting).since(before).scripts / refusals

	s.atMost("commands to Redis when a holder in the process refuses", commands, "", 0)
	s.atMost("refused in core", nanos(inCore)/1000, "µs", 0.3)
	s.atMost("refused through gin", nanos(inGin)/1000, "µs", 1.5)
	s.atMost("scripts when another process holds", trips, "", 1)
	s.fact("refusals: core %.0f ns, %d allocations; through gin %.0f ns, %d allocations; gin alone %.0f ns",
		nanos(inCore), inCore.AllocsPerOp(), nanos(inGin), inGin.AllocsPerOp(), nanos(inBare))
}

// request is one that a handler or an interceptor serves.
type request func() error

// answered is a request to h, which answers with status.
func answered(h http.Handler, status int) request {
	w, r := &discard{header: http.Header{}}, httptest.NewRequest(http.MethodPost, "/orders/42", nil)
	return func() error {
		clear(w.header)
		h.ServeHTTP(w, r)
		if w.status != status {
			return errHeld
		}
		return nil
	}
}

func measured(r request) testing.BenchmarkResult {
	return testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			check(r())
		}
	})
}

// discard is a response that nobody reads.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

func nanos(r testing.BenchmarkResult) float64 { return float64(r.T.Nanoseconds()) / float64(r.N) }

func engine(addr string, opts ...core.Option) *core.Locks {
	locks, err := core.New(core.Redis(redis.NewClient(&redis.Options{Addr: addr})), opts...)
	check(err)
	return locks
}
