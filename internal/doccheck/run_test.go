package doccheck

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/httplock"
	"github.com/latchkit/latchkit/internal/embedded"
)

// The addresses that the documentation uses, and which a test cannot: for them it puts others.
const (
	docRedis  = "localhost:6379"
	docListen = ":8080"
)

// patience is for the slowest machine; what is right ends within a few seconds.
const patience = 5 * time.Minute

// Every command in a shell block works: examples are run, once each; of what would install something, or run this test
// again, it is seen that it is there.
func TestCommandsWork(t *testing.T) {
	t.Parallel()
	addr := startRedis(t)
	listen := freePort(t)
	locks := lockShop(t, addr)
	here := strings.NewReplacer(docRedis, addr, "localhost"+docListen, "127.0.0.1"+listen, " "+docListen, " 127.0.0.1"+listen)
	seen := map[string]bool{}
	for _, p := range allPages(t) {
		for _, b := range p.blocks {
			if b.lang != "sh" {
				continue
			}
			for i, line := range strings.Split(strings.TrimSpace(b.text), "\n") {
				command, _, _ := strings.Cut(line, " #")
				command = strings.TrimSpace(command)
				if command == "" || seen[command] {
					continue
				}
				seen[command] = true
				t.Run(command, func(t *testing.T) {
					if _, err := locks.Acquire(t.Context(), "order:42"); err != nil && !errors.Is(err, core.ErrNotAcquired) {
						t.Fatal(err) // the order that is looked at; one command takes it away
					}
					if err := try(t, strings.Fields(here.Replace(command)), "127.0.0.1"+listen, locks); err != nil {
						t.Errorf("%s:%d: %v", b.page, b.line+i, err)
					}
				})
			}
		}
	}
	if len(seen) < 8 {
		t.Errorf("found %d commands", len(seen))
	}
}

// try runs a command, or looks whether it could be run.
func try(t *testing.T, words []string, listen string, locks *core.Locks) error {
	switch name := strings.Join(words[:2], " "); name {
	case "go run":
		dir := filepath.Join(root, words[2])
		if _, err := os.Stat(filepath.Join(dir, "main.go")); err != nil {
			return err
		}
		if endless(words) {
			return firstLine(t, executable(t, words[2]), words[3:]...)
		}
		return output(t, words[0], words[1:]...)
	case "go get":
		if words[2] != module {
			return fmt.Errorf("%q is not %s", words[2], module)
		}
	case "go mod":
		if words[2] == "edit" && words[4] != module+"=../latchkit" {
			return fmt.Errorf("%q does not replace %s", words[4], module)
		}
	case "go test":
		_, err := os.Stat(filepath.Join(root, words[2]))
		return err
	case "curl -i":
		serve(t, listen, exec.Command(executable(t, "./examples/quickstart"), "-serve", listen))
		resp, err := http.Post("http://"+words[len(words)-1], "", nil)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	case "curl -H": // of the debug page, which stands elsewhere
		server := httptest.NewServer(httplock.DebugHandler(locks))
		defer server.Close()
		there, err := url.Parse(strings.Trim(words[len(words)-1], "'"))
		if err != nil {
			return err
		}
		return getJSON(t.Context(), server.URL+there.RequestURI())
	default:
		if words[0] != "make" {
			return fmt.Errorf("no way is known to test %q", name)
		}
		makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
		if err != nil || !regexp.MustCompile(`(?m)^`+words[1]+`:`).Match(makefile) {
			return fmt.Errorf("no target %s, %w", words[1], err)
		}
	}
	return nil
}

// endless tells whether a command goes on until it is interrupted.
func endless(words []string) bool {
	return slices.Contains(words, "-serve") || slices.Contains(words, "watch")
}

func output(t *testing.T, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = root
	cmd.Stdin = strings.NewReader("yes\n") // for what asks first
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	if len(bytes.TrimSpace(out)) == 0 {
		return fmt.Errorf("it prints nothing")
	}
	return nil
}

// firstLine runs what does not end by itself until it has printed something.
func firstLine(t *testing.T, program string, args ...string) error {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() {
		err = fmt.Errorf("it prints nothing: %w", lines.Err())
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return err
}

// executable returns the program of a package. go run builds it and keeps it in its cache, where the second run finds it;
// that of the first run is gone with it.
func executable(t *testing.T, args ...string) string {
	t.Helper()
	for range 2 {
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"run", "-exec", "echo"}, args...)...)
		cmd.Dir = root
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, &stderr)
		}
		if program := strings.TrimSpace(string(out)); exists(program) {
			return program
		}
	}
	t.Fatalf("go run keeps no program of %v", args)
	return ""
}

func exists(file string) bool { _, err := os.Stat(file); return err == nil }

// serve runs a server until the test ends, and returns when it listens.
func serve(t *testing.T, addr string, cmd *exec.Cmd, env ...string) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = append(append(os.Environ(), "GIN_MODE=release"), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	for {
		if conn, err := net.Dial("tcp", addr); err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-ended:
			t.Fatalf("it has ended\n%s", &out)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Whole programs serve: an order is paid.
func TestProgramsServe(t *testing.T) {
	t.Parallel()
	addr := startRedis(t)
	n := 0
	for _, p := range allPages(t) {
		for _, b := range p.blocks {
			if b.lang != "go" || !strings.HasPrefix(b.text, "package main") {
				continue
			}
			n++
			t.Run(fmt.Sprintf("%s:%d", b.page, b.line), func(t *testing.T) {
				listen := "127.0.0.1" + freePort(t)
				serve(t, listen, exec.Command(programOf(t, b)), "DOC_REDIS="+addr, "DOC_LISTEN="+listen)
				resp, err := http.Post("http://"+listen+"/orders/42/pay", "", nil)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Error(resp.Status)
				}
			})
		}
	}
	if n < 4 {
		t.Errorf("found %d programs", n)
	}
	http.DefaultClient.CloseIdleConnections()
}

// programOf builds a block whose addresses are the environment's. Its files are laid over the module, so that the
// module's requirements hold for it, and nothing is written there.
func programOf(t *testing.T, b block) string {
	t.Helper()
	text := strings.NewReplacer(`"`+docRedis+`"`, "docRedis", `"`+docListen+`"`, "docListen").Replace(b.text)
	const addresses = "package main\n\nimport \"os\"\n\nvar docRedis, docListen = os.Getenv(\"DOC_REDIS\"), os.Getenv(\"DOC_LISTEN\")\n"
	base, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("doc-%s-%d", strings.NewReplacer("/", "-", ".", "-").Replace(b.page), b.line)
	dir, overlay := t.TempDir(), map[string]string{}
	for file, text := range map[string]string{"main.go": text, "addresses.go": addresses} {
		real := filepath.Join(dir, file)
		if err := os.WriteFile(real, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay[filepath.Join(base, "internal", "doccheck", name, file)] = real
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		t.Fatal(err)
	}
	return executable(t, "-overlay", file, "./internal/doccheck/"+name)
}

func getJSON(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var page struct{}
	return json.NewDecoder(resp.Body).Decode(&page)
}

// lockShop returns the engine of the service that the page on operations looks at.
func lockShop(t *testing.T, addr string) *core.Locks {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })
	locks, err := core.New(core.Redis(rdb), core.WithPrefix("shop:"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // frees what is held
		_ = locks.Close(ctx)
	})
	return locks
}

func startRedis(t *testing.T) string {
	t.Helper()
	addr, stop, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return addr
}

// freePort returns a port that nobody listens on, with a colon before it.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return fmt.Sprintf(":%d", listener.Addr().(*net.TCPAddr).Port)
}
