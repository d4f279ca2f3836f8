// Quickstart: a gin service in which one line keeps an order from being paid twice.
//
//	go run ./examples/quickstart                        on a Redis inside the program, posting to itself
//	go run ./examples/quickstart -redis localhost:6379  the same on a real one
//	go run ./examples/quickstart -serve :8080           stays up, for curl
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/ginlock"
	"github.com/latchkit/latchkit/internal/demo"
)

var serve = flag.String("serve", "", "stay up on this `address`, such as :8080, instead of posting to itself")

func main() { demo.Main(run) }

func run(ctx context.Context, out io.Writer, redisAddr string) error {
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr})
	defer rdb.Close()

	locks, err := core.New(core.Redis(rdb), core.WithPrefix("quickstart:")) // nothing of yours, on a real Redis
	if err != nil {
		return err
	}
	defer locks.Close(context.WithoutCancel(ctx))
	core.SetDefault(locks)
	defer core.SetDefault(nil)

	if *serve != "" {
		return stayUp(ctx, out, service(), *serve)
	}
	return demonstrate(ctx, out, locks, service())
}

// service is a shop with one route. The lock is the ByParam line: one payment of an order at a time, on all machines
// that share the Redis, and none again within a minute of one that succeeded.
func service() http.Handler {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.Use(gin.Recovery())
	r.POST("/orders/:orderID/pay",
		ginlock.ByParam("orderID", ginlock.WithCooldown(time.Minute)),
		pay)
	return r
}

// pay stands for a call to a payment provider.
func pay(c *gin.Context) {
	select {
	case <-time.After(200 * time.Millisecond):
		c.JSON(http.StatusOK, gin.H{"order": c.Param("orderID"), "paid": true})
	case <-c.Request.Context().Done(): // the client's end, or the lease's
		c.AbortWithStatus(http.StatusServiceUnavailable)
	}
}

func stayUp(ctx context.Context, out io.Writer, handler http.Handler, addr string) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Listening on %s. Pay the same order twice:\n\n", listener.Addr())
	fmt.Fprintf(out, "  curl -i -X POST localhost:%d/orders/42/pay\n\n", listener.Addr().(*net.TCPAddr).Port)

	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Shutdown(context.WithoutCancel(ctx)) })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// demonstrate posts 50 submissions of order 42 and one each of 20 others, all at once, and says what became of them.
func demonstrate(ctx context.Context, out io.Writer, locks *core.Locks, handler http.Handler) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()

	orders := []string{"42"}
	for i := range 20 {
		orders = append(orders, fmt.Sprint(100+i))
	}
	for _, order := range orders {
		// An earlier run has paid it, maybe less than a minute ago.
		if err := locks.ForceRelease(ctx, "orderID:"+order); err != nil {
			return err
		}
	}
	posts := append(slices.Repeat([]string{"42"}, 49), orders...)
	answers, err := postAll("http://"+listener.Addr().String(), posts)
	if err != nil {
		return err
	}
	return report(out, answers)
}

// answer is what came back for one submission.
type answer struct {
	order  string
	status int
}

func postAll(url string, orders []string) ([]answer, error) {
	start := make(chan struct{})
	answers, failures := make(chan answer), make(chan error, len(orders))
	for _, order := range orders {
		go func() {
			<-start
			resp, err := http.Post(url+"/orders/"+order+"/pay", "application/json", nil)
			if err != nil {
				failures <- err
				return
			}
			resp.Body.Close()
			answers <- answer{order, resp.StatusCode}
		}()
	}
	close(start)
	all := make([]answer, 0, len(orders))
	for range orders {
		select {
		case a := <-answers:
			all = append(all, a)
		case err := <-failures:
			return nil, err
		}
	}
	return all, nil
}

func report(out io.Writer, answers []answer) error {
	var handled, refused, others, failed int
	for _, a := range answers {
		switch {
		case a.order != "42" && a.status == http.StatusOK:
			others++
		case a.status == http.StatusOK:
			handled++
		case a.order == "42" && a.status == http.StatusConflict:
			refused++
		default:
			failed++
		}
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "submissions\tsent\t200 OK\t409 Conflict")
	fmt.Fprintf(table, "order 42, all at once\t%d\t%d\t%d\n", handled+refused, handled, refused)
	fmt.Fprintf(table, "20 other orders\t%d\t%d\t%d\n", others, others, 0)
	table.Flush()
	fmt.Fprintf(out, "\norder 42: %d handled, %d refused; other orders: %d handled\n", handled, refused, others)
	if failed > 0 {
		return fmt.Errorf("%d of %d submissions were answered otherwise", failed, len(answers))
	}
	return nil
}
