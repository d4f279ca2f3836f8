package core

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func smokeBackends(t *testing.T) map[string]Backend {
	m := map[string]Backend{"local": Local()}
	if a := os.Getenv("SMOKE"); a != "" {
		c := redis.NewClient(&redis.Options{Addr: a})
		c.FlushAll(context.Background())
		m["redis"] = Redis(c)
	}
	return m
}

func TestSmoke(t *testing.T) {
	for name, b := range smokeBackends(t) {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			l, err := New(b, WithTTL(time.Second))
			if err != nil {
				t.Fatal(err)
			}
			a, err := l.Acquire(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			fmt.Println(a.Fence(), a.Remaining())
			_, err = l.Acquire(ctx, "k")
			fmt.Println(err)
			l2, _ := New(b)
			_, err = l2.Acquire(ctx, "k")
			fmt.Println(err)
			if !errors.Is(err, ErrNotAcquired) {
				t.Fatal(err)
			}
			in, err := l.Acquire(a.Context(), "k")
			if err != nil || in.Fence() != a.Fence() {
				t.Fatal(err)
			}
			fmt.Println(in.Release(ctx), a.Release(ctx), a.Release(ctx))
			// contention
			var wg sync.WaitGroup
			n := 0
			var last int64
			for i := range 64 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					ll := l
					if i%2 == 0 {
						ll = l2
					}
					for range 200 {
						x, err := ll.Acquire(ctx, "k", WithWait(10*time.Second))
						if err != nil {
							t.Error(err)
							return
						}
						n++
						if x.Fence() <= last {
							t.Error("fence", x.Fence(), last)
						}
						last = x.Fence()
						if err := x.Release(ctx); err != nil {
							t.Error(err)
						}
					}
				}()
			}
			start := time.Now()
			wg.Wait()
			fmt.Println("n", n, time.Since(start))
			if n != 64*200 {
				t.Fatal(n)
			}
			x, err := l.Acquire(ctx, "long")
			time.Sleep(2500 * time.Millisecond)
			fmt.Println(x.Remaining(), context.Cause(x.Context()))
			fmt.Println(x.Release(ctx))
			fmt.Println(l.Close(ctx), l2.Close(ctx))
		})
	}
}
