package doccheck

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func allPages(t *testing.T) []page {
	t.Helper()
	all, err := pages(root)
	if err != nil || len(all) < 10 {
		t.Fatalf("%d pages, %v", len(all), err)
	}
	return all
}

// Every Go block is right: whole programs as they are, fragments in surroundings that a reader takes for granted.
func TestGoBlocksCompile(t *testing.T) {
	t.Parallel()
	var programs []string
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
			programs = append(programs, text)
		}
	}
	if len(programs) < 30 {
		t.Fatalf("found %d blocks", len(programs))
	}
	wrong, err := compile(programs)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range wrong {
		t.Error(err)
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
	text, err = program(block{page: "docs/x.md", line: 4, text: "err := core.New()"})
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := compile([]string{text, "package main\nfunc main() {}"})
	if err != nil || len(wrong) == 0 || !strings.HasPrefix(wrong[0].Error(), "docs/x.md:4") {
		t.Error(wrong, err)
	}
}
