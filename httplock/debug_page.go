package httplock

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"strings"
	"sync"
	"time"

	"github.com/latchkit/latchkit/internal/plain"
)

var (
	//go:embed debug/page.html
	debugHTML string
	//go:embed debug/style.css
	debugStyle string
	//go:embed debug/script.js
	debugScript string
)

const (
	// maxRows is how many rows of a table the page has; JSON has them all.
	maxRows = 500
	// longestText is how many bytes of a key or a label the page shows.
	longestText = 512
)

// debugPage is parsed when it is first wanted: a program that shows no page does not carry html/template.
var debugPage = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"style":  func() template.CSS { return template.CSS(debugStyle) },
		"script": func() template.JS { return template.JS(debugScript) },
		"text":   func(s string) string { return plain.Text(s, longestText) },
		"span":   func(s seconds) string { return plain.Duration(time.Duration(s)) },
		"clock":  func(t time.Time) string { return t.UTC().Format("15:04:05") },
		"day":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
		"stamp":  func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"rows":   func(n int) int { return min(n, maxRows) },
		"more":   func(n int) int { return max(0, n-maxRows) },
	}).Parse(debugHTML))
})

// debugPolicy allows the page its own style and script, and to ask for itself again. Nothing that a key could smuggle in
// would run, nor be fetched.
var debugPolicy = sync.OnceValue(func() string {
	return strings.Join([]string{
		"default-src 'none'", "style-src " + sourceHash(debugStyle), "script-src " + sourceHash(debugScript),
		"connect-src 'self'", "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'",
	}, "; ")
})

func sourceHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
