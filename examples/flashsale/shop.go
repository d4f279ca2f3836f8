package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/ginlock"
)

// instance is one process of the shop. It prints the address on which it serves.
func instance(ctx context.Context, out io.Writer, args []string) error {
	rdb := redis.NewClient(&redis.Options{Addr: args[0]})
	defer rdb.Close()
	locks, err := core.New(core.Redis(rdb), core.WithPrefix(prefix))
	if err != nil {
		return err
	}
	defer locks.Close(context.WithoutCancel(ctx))
	core.SetDefault(locks)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, listener.Addr())
	server := &http.Server{Handler: shop(rdb), ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// shop has three routes that differ in nothing but their lock.
func shop(rdb *redis.Client) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.Use(gin.Recovery())
	buy := func(c *gin.Context) { buy(c, rdb) }
	wait := ginlock.WithAcquire(core.WithWait(time.Minute))
	r.POST("/unlocked/:sku", buy)
	r.POST("/shop/:sku", ginlock.By(theShop, wait), buy)
	r.POST("/sku/:sku", ginlock.ByParam("sku", wait), buy)
	return r
}

// theShop is one key for all articles.
func theShop(*gin.Context) (string, error) { return "shop:1", nil }

// buy sells one piece: it reads the stock, takes the money, and writes what is left, as a service does whose stock
// stands in another's API. Nothing here but the lock of the route keeps two buyers from reading the same number.
func buy(c *gin.Context, rdb *redis.Client) {
	ctx, stock := c.Request.Context(), stockKey(c.Param("sku"))
	left, err := rdb.Get(ctx, stock).Int()
	if err != nil {
		_ = c.AbortWithError(http.StatusServiceUnavailable, err)
		return
	}
	if left == 0 {
		c.Status(http.StatusGone)
		return
	}
	time.Sleep(payment)
	if err := rdb.Set(ctx, stock, left-1, keep).Err(); err != nil {
		_ = c.AbortWithError(http.StatusServiceUnavailable, err)
		return
	}
	c.Status(http.StatusOK)
}

const (
	payment = 10 * time.Millisecond
	prefix  = "flashsale:"
	keep    = 10 * time.Minute // of what stands in Redis
)

func stockKey(sku string) string { return prefix + "stock:" + sku }
