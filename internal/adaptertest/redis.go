package adaptertest

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/admit"
	"github.com/latchkit/latchkit/internal/redistest"
)

// RunHTTPOnRedis runs the cases of Run on a real Redis server, and then takes the server away.
func RunHTTPOnRedis(t *testing.T, h HTTP) {
	quiet(t)
	server := redistest.Start(t)
	rdb := server.Client()
	a := h.adapter("HTTP/1.1")
	a.Locks = func(t *testing.T) *core.Locks {
		t.Helper()
		locks, err := core.New(core.Redis(rdb), core.WithPrefix(t.Name()+":"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := locks.Close(ctx); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
		return locks
	}
	a.Lose = func(ctx context.Context, _ *core.Locks, _ string) error {
		return rdb.FlushDB(ctx).Err()
	}
	Run(t, a)
	t.Run("R15 the server is away", func(t *testing.T) {
		call := a.Serve(t, Service{Options: Options{Locker: a.locks(t), RetryAfter: 3 * time.Second}, Handle: succeed})
		if answer := call(t.Context(), "pay", "42"); !answer.handled() {
			t.Fatalf("%+v", answer)
		}
		server.Kill()
		if answer := call(t.Context(), "pay", "42"); answer.Row != admit.Unavailable || answer.RetryAfter != 3*time.Second {
			t.Errorf("%+v, want unavailable", answer)
		}
	})
	t.Run("keys as they stand in Redis", func(t *testing.T) {
		server.Restart()
		service := h.start(t, "HTTP/1.1", Route{Path: "/o/:id", Key: byParam("id"), Options: HTTPOptions{Options: Options{Locker: a.locks(t)}},
			Handler: func(w http.ResponseWriter, r *http.Request) error {
				key := t.Name() + ":id:42"
				if n, err := rdb.Exists(r.Context(), key).Result(); n != 1 || err != nil {
					t.Errorf("%s: %d, %v", key, n, err)
				}
				return answer(w, nil)
			}})
		if got := service.do(t.Context(), http.MethodPost, "/o/42", nil, nil); got.status != http.StatusCreated {
			t.Errorf("%+v", got)
		}
	})
}
