package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/internal/demo"
)

// plan is the size of a sale.
type plan struct {
	instances int
	buyers    int
	wishes    int // articles that each buyer wants a piece of
	articles  int
	pieces    int // of each article
}

var rush = plan{instances: 8, buyers: 100, wishes: 5, articles: 20, pieces: 10}

func (p plan) requests() int { return p.buyers * p.wishes }
func (p plan) stock() int    { return p.articles * p.pieces }

// way is a route of the shop.
type way struct{ name, path string }

var ways = []way{{"none", "/unlocked/"}, {"per shop", "/shop/"}, {"per SKU", "/sku/"}}

// sale is the shop's instances, seen by their buyers.
type sale struct {
	plan
	rdb       *redis.Client
	client    *http.Client
	processes []*demo.Process
	urls      []string
}

func open(redisAddr string, p plan) (*sale, error) {
	s := &sale{
		plan:   p,
		rdb:    redis.NewClient(&redis.Options{Addr: redisAddr}),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: p.buyers}},
	}
	for range p.instances {
		process, err := demo.Start(redisAddr)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.processes = append(s.processes, process)
	}
	for _, process := range s.processes {
		addr, err := process.Line()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("an instance did not start: %w", err), s.close())
		}
		s.urls = append(s.urls, "http://"+addr)
	}
	return s, nil
}

func (s *sale) close() error {
	s.client.CloseIdleConnections()
	var errs []error
	for _, process := range s.processes {
		errs = append(errs, process.Stop())
	}
	return errors.Join(append(errs, s.rdb.Close())...)
}

func (p plan) sku(n int) string { return fmt.Sprintf("article-%d", n%p.articles) }

func (s *sale) restock(ctx context.Context) error {
	for n := range s.articles {
		if err := s.rdb.Set(ctx, stockKey(s.sku(n)), s.pieces, keep).Err(); err != nil {
			return err
		}
	}
	return nil
}

// result is what a sale has brought.
type result struct {
	way    way
	sold   int
	took   []time.Duration // of each request, sorted
	lasted time.Duration
}

// sell has all buyers buy at once, each at another instance with every article.
func (s *sale) sell(ctx context.Context, way way, bar *bar) (result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	took := make([]time.Duration, s.requests())
	var sold atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for buyer := range s.buyers {
		wg.Go(func() {
			for wish := range s.wishes {
				url := s.urls[(buyer+wish)%s.instances] + way.path + s.sku(buyer+wish*s.articles/s.wishes)
				sent := time.Now()
				got, err := s.buy(ctx, url)
				if err != nil {
					cancel(err)
					return
				}
				took[buyer*s.wishes+wish] = time.Since(sent)
				if got {
					sold.Add(1)
				}
				bar.step()
			}
		})
	}
	wg.Wait()
	bar.clear()
	slices.Sort(took)
	return result{way, int(sold.Load()), took, time.Since(start)}, context.Cause(ctx)
}

// buy tells whether a piece was sold.
func (s *sale) buy(ctx context.Context, url string) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return false, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return false, err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusGone {
		return false, fmt.Errorf("POST %s: %s", url, resp.Status)
	}
	return resp.StatusCode == http.StatusOK, nil
}

func (r result) mean() time.Duration {
	var sum time.Duration
	for _, d := range r.took {
		sum += d
	}
	return sum / time.Duration(len(r.took))
}

func (r result) quantile(q float64) time.Duration { return r.took[int(q*float64(len(r.took)-1))] }
