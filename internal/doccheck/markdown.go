package doccheck

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// page is one file of Markdown.
type page struct {
	name   string // slashed, from the root of the repository
	blocks []block
	links  []link
	slugs  map[string]bool // of its headings
}

// block is fenced code.
type block struct {
	page string
	line int // of its first line
	lang string
	text string
}

type link struct {
	line   int
	target string
}

// pages reads all documentation below root.
func pages(root string) ([]page, error) {
	var all []page
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && (strings.HasPrefix(name, ".") || name == "testdata") && file != root {
			return filepath.SkipDir
		}
		if entry.IsDir() || filepath.Ext(file) != ".md" {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err == nil {
			all = append(all, readPage(filepath.ToSlash(name), string(text)))
		}
		return err
	})
	return all, err
}

var (
	linkPattern = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	codePattern = regexp.MustCompile("`[^`]*`")
	notInSlug   = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

func readPage(name, text string) page {
	p := page{name: name, slugs: map[string]bool{}}
	var open *block
	for i, line := range strings.Split(text, "\n") {
		if fence, ok := strings.CutPrefix(strings.TrimSpace(line), "```"); ok {
			if open == nil {
				open = &block{page: name, line: i + 2, lang: fence}
				continue
			}
			p.blocks = append(p.blocks, *open)
			open = nil
			continue
		}
		if open != nil {
			open.text += line + "\n"
			continue
		}
		if heading := strings.TrimLeft(line, "#"); heading != line {
			p.slugs[slug(heading)] = true
		}
		for _, found := range linkPattern.FindAllStringSubmatch(codePattern.ReplaceAllString(line, "code"), -1) {
			p.links = append(p.links, link{i + 1, found[1]})
		}
	}
	return p
}

// slug is the anchor that GitHub gives a heading.
func slug(heading string) string {
	heading = strings.ToLower(strings.TrimSpace(heading))
	return strings.ReplaceAll(notInSlug.ReplaceAllString(heading, ""), " ", "-")
}

// resolve returns the file, from the root, and the anchor that a link on page leads to.
func (l link) resolve(from string) (file, anchor string) {
	file, anchor, _ = strings.Cut(l.target, "#")
	if file == "" {
		return from, anchor
	}
	return path.Join(path.Dir(from), file), anchor
}

func (l link) external() bool {
	return slices.ContainsFunc([]string{"https://", "http://", "mailto:"}, func(scheme string) bool {
		return strings.HasPrefix(l.target, scheme)
	})
}
