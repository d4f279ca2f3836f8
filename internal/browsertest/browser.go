// Package browsertest opens pages in a real headless Chromium, for tests of what people see. It speaks the DevTools
// protocol over a pipe.
//
// Source: https://chromedevtools.github.io/devtools-protocol/
package browsertest

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// Enabled is the environment variable without which Start skips the test: a browser is large and slow.
const Enabled = "LATCHKIT_UI"

// limit is for how long the browser may think about one thing.
const limit = time.Minute

// Browser is a running Chromium.
type Browser struct {
	in io.Writer

	mu      sync.Mutex
	last    int
	waiting map[int]chan reply
	pages   map[string]*Page // by session
	gone    chan struct{}
}

type reply struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

// Start starts a Chromium that ends with the test.
func Start(t *testing.T) *Browser {
	t.Helper()
	if os.Getenv(Enabled) == "" {
		t.Skipf("no %s=1: make test-ui sets it", Enabled)
	}
	path := executable()
	if path == "" {
		t.Fatal("there is no Chromium: internal/tools/install-chromium.sh")
	}
	toBrowser, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, fromBrowser, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var words bytes.Buffer
	// The sandbox cannot be had as root or in most containers. The pages are our own.
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--no-first-run", "--log-level=3", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{toBrowser, fromBrowser} // 3 and 4, as it expects
	cmd.Stderr = &words
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	toBrowser.Close()
	fromBrowser.Close()
	b := &Browser{in: in, waiting: make(map[int]chan reply), pages: make(map[string]*Page), gone: make(chan struct{})}
	go b.listen(out)
	t.Cleanup(func() {
		_, _ = b.call("", "Browser.close", nil)
		in.Close()
		<-b.gone
		out.Close()
		_ = cmd.Wait() // how it ends is no concern of the test
		if t.Failed() {
			t.Logf("the browser said:\n%s", words.String())
		}
	})
	return b
}

func executable() string {
	for _, name := range []string{os.Getenv("LATCHKIT_CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	return ""
}

// listen hands out what the browser says: answers to those who wait for them, events to their page.
func (b *Browser) listen(out io.Reader) {
	defer close(b.gone)
	for in := bufio.NewReader(out); ; {
		text, err := in.ReadBytes(0)
		if err != nil {
			return
		}
		var message struct {
			ID        int
			Method    string
			SessionID string
			Params    json.RawMessage
			reply
		}
		if json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &message) != nil {
			continue
		}
		b.mu.Lock()
		if answered := b.waiting[message.ID]; answered != nil {
			delete(b.waiting, message.ID)
			answered <- message.reply
		} else if p := b.pages[message.SessionID]; p != nil {
			p.hear(message.Method, message.Params)
		}
		b.mu.Unlock()
	}
}

// call sends a command and waits for its answer.
func (b *Browser) call(session, method string, params any) (json.RawMessage, error) {
	answered := make(chan reply, 1)
	b.mu.Lock()
	b.last++
	command := map[string]any{"id": b.last, "method": method}
	if session != "" {
		command["sessionId"] = session
	}
	if params != nil {
		command["params"] = params
	}
	text, err := json.Marshal(command)
	if err == nil {
		b.waiting[b.last] = answered
		_, err = b.in.Write(append(text, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case r := <-answered:
		if r.Error != nil {
			return nil, fmt.Errorf("%s: %s", method, r.Error.Message)
		}
		return r.Result, nil
	case <-b.gone:
		return nil, errors.New("the browser is gone")
	case <-time.After(limit):
		return nil, fmt.Errorf("%s: no answer within %v", method, limit)
	}
}

// View is how somebody looks at a page.
type View struct {
	Width, Height int
	Phone         bool
	Dark          bool
	NoScript      bool
}

// Page is an open page.
type Page struct {
	browser *Browser
	t       *testing.T
	session string

	complaints []string // guarded by the browser's mutex
}

type object map[string]any

// Open opens url, and returns when it is loaded.
func (b *Browser) Open(t *testing.T, url string, view View) *Page {
	t.Helper()
	p := &Page{browser: b, t: t}
	target := p.do("Target.createTarget", object{"url": "about:blank"})["targetId"]
	p.session = p.do("Target.attachToTarget", object{"targetId": target, "flatten": true})["sessionId"].(string)
	b.mu.Lock()
	b.pages[p.session] = p
	b.mu.Unlock()
	t.Cleanup(func() { _, _ = b.call("", "Target.closeTarget", object{"targetId": target}) })

	scheme := "light"
	if view.Dark {
		scheme = "dark"
	}
	p.do("Runtime.enable", nil)
	p.do("Log.enable", nil)
	p.do("Page.enable", nil)
	p.do("Emulation.setScriptExecutionDisabled", object{"value": view.NoScript})
	p.do("Emulation.setEmulatedMedia", object{"features": []object{{"name": "prefers-color-scheme", "value": scheme}}})
	p.do("Emulation.setDeviceMetricsOverride", object{"width": view.Width, "height": view.Height, "deviceScaleFactor": 1, "mobile": view.Phone})
	if failure := p.do("Page.navigate", object{"url": url})["errorText"]; failure != nil {
		t.Fatalf("%s: %v", url, failure)
	}
	p.Want("document.readyState === 'complete' && location.href !== 'about:blank'")
	return p
}

func (p *Page) do(method string, params any) (result object) {
	p.t.Helper()
	text, err := p.browser.call(p.session, method, params)
	if err == nil {
		err = json.Unmarshal(text, &result)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return result
}

// Eval returns the value of an expression of JavaScript on the page.
func (p *Page) Eval(expression string) any {
	p.t.Helper()
	result := p.do("Runtime.evaluate", object{"expression": expression, "returnByValue": true, "awaitPromise": true})
	if failure, failed := result["exceptionDetails"]; failed {
		p.t.Fatalf("%s: %v", expression, failure)
	}
	return result["result"].(map[string]any)["value"]
}

// Want waits until an expression is true.
func (p *Page) Want(condition string) {
	p.t.Helper()
	for deadline := time.Now().Add(limit); p.Eval(condition) != true; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s did not come true; the page is\n%v", condition, p.Eval("document.documentElement.innerText"))
		}
	}
}

// Screenshot writes a picture of the whole page to file.
func (p *Page) Screenshot(file string) {
	p.t.Helper()
	text := p.do("Page.captureScreenshot", object{"format": "png", "captureBeyondViewport": true})["data"].(string)
	picture, err := base64.StdEncoding.DecodeString(text)
	if err == nil {
		err = os.WriteFile(file, picture, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// Complaints are the errors that the browser has logged: of scripts, of what the page's policy forbids, of what could
// not be fetched.
func (p *Page) Complaints() []string {
	p.browser.mu.Lock()
	defer p.browser.mu.Unlock()
	return append([]string(nil), p.complaints...)
}

// hear is told an event of the page, under the browser's mutex.
func (p *Page) hear(method string, params json.RawMessage) {
	switch method {
	case "Runtime.exceptionThrown", "Page.javascriptDialogOpening":
		p.complaints = append(p.complaints, method+": "+string(params))
	case "Log.entryAdded":
		var said struct{ Entry struct{ Level, Text string } }
		if json.Unmarshal(params, &said) == nil && said.Entry.Level == "error" {
			p.complaints = append(p.complaints, said.Entry.Text)
		}
	}
}
