package adaptertest

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/latchkit/latchkit/core/locktest"
)

func serverSentEvents(t *testing.T, h HTTP, proto string) {
	for _, cooldown := range []time.Duration{0, time.Minute} { // with a cooldown the writer is watched
		read := make(chan struct{})
		service := h.start(t, proto, Route{Method: http.MethodGet, Path: "/o/:id", Key: byParam("id"),
			Options: HTTPOptions{Options: Options{Locker: locktest.New(t), Cooldown: cooldown}},
			Handler: func(w http.ResponseWriter, _ *http.Request) error {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: one\n\n")
				w.(http.Flusher).Flush()
				select {
				case <-read:
				case <-time.After(patience):
					t.Error("the event did not arrive before the handler's end")
				}
				_, _ = io.WriteString(w, "data: two\n\n")
				return http.NewResponseController(w).Flush()
			}})
		res, err := service.client.Get(service.url + "/o/42")
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(res.Body)
		if !lines.Scan() || lines.Text() != "data: one" {
			t.Errorf("first line %q", lines.Text())
		}
		close(read)
		rest := ""
		for lines.Scan() {
			rest += lines.Text()
		}
		if rest != "data: two" {
			t.Errorf("the rest is %q", rest)
		}
		_ = res.Body.Close()
	}
}

func websocketUpgrade(t *testing.T, h HTTP, proto string) {
	if proto != "HTTP/1.1" {
		t.Skip("HTTP/2 has no Upgrade")
	}
	for _, cooldown := range []time.Duration{0, time.Minute} {
		locks := locktest.New(t)
		var upgrader websocket.Upgrader
		service := h.start(t, proto, Route{Method: http.MethodGet, Path: "/o/:id", Key: byParam("id"),
			Options: HTTPOptions{Options: Options{Locker: locks, Cooldown: cooldown}},
			Handler: func(w http.ResponseWriter, r *http.Request) error {
				conn, err := upgrader.Upgrade(w, r, nil)
				if err != nil {
					return fmt.Errorf("upgrade: %w", err)
				}
				defer func() { _ = conn.Close() }()
				kind, message, err := conn.ReadMessage()
				if err != nil {
					return err
				}
				return conn.WriteMessage(kind, message)
			}})
		conn, res, err := websocket.DefaultDialer.Dial(strings.Replace(service.url, "http", "ws", 1)+"/o/42", nil)
		if err != nil {
			t.Fatalf("Dial: %v (%+v)", err, res)
		}
		_ = res.Body.Close()
		if got := service.do(t.Context(), http.MethodGet, "/o/42", nil, nil); got.status != http.StatusConflict {
			t.Errorf("while connected: %+v, want 409", got)
		}
		if err := conn.WriteMessage(websocket.TextMessage, []byte("hello")); err != nil {
			t.Error(err)
		}
		if _, message, err := conn.ReadMessage(); err != nil || string(message) != "hello" {
			t.Errorf("echo: %q, %v", message, err)
		}
		_ = conn.Close()
		wantFree(t, locks, "id:42") // a connection never cools down
	}
}
