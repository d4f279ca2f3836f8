package doccheck

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "../.."

func allPages(t *testing.T) []page {
	t.Helper()
	all, err := pages(root)
	if err != nil || len(all) < 10 {
		t.Fatalf("%d pages, %v", len(all), err)
	}
	return all
}

// Every Go block is right: whole programs as they are, fragments in surroundings that a reader takes for granted. The
// files are laid over the module, so that nothing is written into it and its requirements hold.
func TestGoBlocksCompile(t *testing.T) {
	t.Parallel()
	base, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	overlay, targets, n := map[string]string{}, []string{}, 0
	dir := t.TempDir()
	for _, p := range allPages(t) {
		for _, b := range p.blocks {
			if b.lang != "go" {
				continue
			}
			text, err := program(b)
			if err != nil {
				t.Errorf("%s:%d: %v", b.page, b.line, err)
				continue
			}
			real := filepath.Join(dir, fmt.Sprintf("%d.go", n))
			if err := os.WriteFile(real, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprintf("block%d", n)
			overlay[filepath.Join(base, name, "block.go")] = real
			targets = append(targets, "./"+name)
			n++
		}
	}
	if n < 30 {
		t.Fatalf("found %d blocks", n)
	}
	file := filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"build", "-overlay", file}, targets...)...).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Links within the repository lead to files, and anchors to headings.
func TestLinks(t *testing.T) {
	t.Parallel()
	all := allPages(t)
	slugs := map[string]map[string]bool{}
	for _, p := range all {
		slugs[p.name] = p.slugs
	}
	n := 0
	for _, p := range all {
		for _, l := range p.links {
			if l.external() {
				if strings.HasPrefix(l.target, "http://") {
					t.Errorf("%s:%d: %s is not https", p.name, l.line, l.target)
				}
				continue
			}
			n++
			file, anchor := l.resolve(p.name)
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s:%d: %s leads nowhere", p.name, l.line, l.target)
			} else if anchor != "" && !slugs[file][anchor] {
				t.Errorf("%s:%d: %s: no such heading", p.name, l.line, l.target)
			}
		}
	}
	if n < 20 {
		t.Errorf("found %d links", n)
	}
}

// The checks find what is wrong.
func TestOfTheChecks(t *testing.T) {
	p := readPage("docs/x.md", "# A & B: `c`…\n[a](y.md#z) `[no](link)`\n```go\nx := 1\n```\n")
	if !p.slugs["a--b-c"] || len(p.links) != 1 || len(p.blocks) != 1 || p.blocks[0].line != 4 {
		t.Errorf("%+v", p)
	}
	if file, anchor := p.links[0].resolve(p.name); file != "docs/y.md" || anchor != "z" {
		t.Error(file, anchor)
	}
	text, err := program(p.blocks[0])
	if err != nil || !strings.Contains(text, "_ = x") || !strings.Contains(text, "docs/x.md:4") {
		t.Error(text, err)
	}
	if _, err := program(block{text: "x := := 1"}); err == nil {
		t.Error("nonsense is taken for Go")
	}
}
