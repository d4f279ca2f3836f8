package doccheck

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

// imports are the packages that a fragment may name without importing them.
var imports = map[string]string{
	"context": "context", "errors": "errors", "fmt": "fmt", "http": "net/http", "httptest": "net/http/httptest",
	"log": "log", "slog": "log/slog", "sql": "database/sql", "strings": "strings", "testing": "testing", "time": "time", "os": "os",
	"gin": "github.com/gin-gonic/gin", "echo": "github.com/labstack/echo/v4", "redis": "github.com/redis/go-redis/v9",
	"grpc": "google.golang.org/grpc", "credentials": "google.golang.org/grpc/credentials", "gobreaker": "github.com/sony/gobreaker/v2",
	"otel": "go.opentelemetry.io/otel", "sdktrace": "go.opentelemetry.io/otel/sdk/trace",
	"otlptracegrpc": "go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc",
	"core":          module + "/core", "locktest": module + "/core/locktest", "ginlock": module + "/ginlock",
	"echolock": module + "/echolock", "httplock": module + "/httplock", "grpclock": module + "/grpclock",
	"otellock": module + "/otellock", "fallback": module + "/fallback",
}

const module = "github.com/latchkit/latchkit"

// surroundings is what a reader takes for granted around a fragment.
const surroundings = `
var (
	ctx    context.Context
	rdb    redis.UniversalClient
	db     *sql.DB
	locks  *core.Locks
	lease  *core.Lease
	server *http.Server
	secret []byte
	flight, seat string
	backend core.Backend
)

func work(ctx context.Context) error { return ctx.Err() }
`

// frameworks are the surroundings that differ: the first whose package a fragment names is its own.
var frameworks = []struct{ name, code string }{
	{"ginlock", "var r *gin.Engine\nvar pay, create, checkout, buy gin.HandlerFunc\nvar theShop ginlock.KeyFunc\nvar wait ginlock.Option\n"},
	{"gin", "var r *gin.Engine\nvar pay gin.HandlerFunc\n"},
	{"echolock", "var e *echo.Echo\nvar pay echo.HandlerFunc\n"},
	{"grpclock", "var lock grpclock.KeyFunc\nvar tls credentials.TransportCredentials\n"},
	{"httplock", "var mux *http.ServeMux\nvar pay http.Handler\nvar admin func(http.Handler) http.Handler\n"},
}

// program makes a package of a block that compiles if the block is right. A fragment is a function's body, or
// declarations.
func program(b block) (string, error) {
	at := fmt.Sprintf("//line %s:%d\n", b.page, b.line)
	if strings.HasPrefix(b.text, "package ") {
		return at + b.text, nil
	}
	if body := at + b.text; parses("package p\n" + body) {
		return complete(surroundings + framework(b.text) + body)
	}
	body := "func fragment() error {\n" + at + b.text
	file, err := parser.ParseFile(token.NewFileSet(), b.page, "package p\n"+body+"\n}", 0)
	if err != nil {
		return "", err
	}
	fragment := file.Decls[len(file.Decls)-1].(*ast.FuncDecl)
	for _, name := range declared(fragment.Body) {
		body += "\n_ = " + name
	}
	return complete(surroundings + framework(b.text) + body + "\nreturn nil\n}")
}

func parses(text string) bool {
	_, err := parser.ParseFile(token.NewFileSet(), "", text, 0)
	return err == nil
}

func framework(text string) string {
	for _, f := range frameworks {
		if names(text, f.name) {
			return f.code
		}
	}
	return ""
}

func names(text, pkg string) bool { return regexp.MustCompile(`\b` + pkg + `\.`).MatchString(text) }

// complete adds the package clause and the imports.
func complete(text string) (string, error) {
	var head strings.Builder
	head.WriteString("package p\n\nimport (\n")
	for name, path := range imports {
		if names(text, name) {
			fmt.Fprintf(&head, "\t%s %q\n", name, path)
		}
	}
	head.WriteString(")\n")
	return head.String() + text, nil
}

// declared are the names that a body declares at its top, which a fragment need not use.
func declared(body *ast.BlockStmt) []string {
	var all []string
	add := func(names ...*ast.Ident) {
		for _, n := range names {
			if n.Name != "_" && !slices.Contains(all, n.Name) {
				all = append(all, n.Name)
			}
		}
	}
	for _, stmt := range body.List {
		switch s := stmt.(type) {
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				continue
			}
			for _, left := range s.Lhs {
				if name, ok := left.(*ast.Ident); ok {
					add(name)
				}
			}
		case *ast.DeclStmt:
			if decl, ok := s.Decl.(*ast.GenDecl); ok && decl.Tok == token.VAR {
				for _, spec := range decl.Specs {
					add(spec.(*ast.ValueSpec).Names...)
				}
			}
		}
	}
	return all
}
