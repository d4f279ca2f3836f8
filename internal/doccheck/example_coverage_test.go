package doccheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every function that a package exports has an Example. Methods are shown by those of what returns them.
func TestEveryFunctionHasAnExample(t *testing.T) {
	t.Parallel()
	for _, pkg := range []string{"core", "core/locktest", "ginlock", "echolock", "httplock", "grpclock", "otellock", "fallback"} {
		functions, examples := declaredIn(t, filepath.Join(root, pkg))
		for _, name := range functions {
			if !examples[name] {
				t.Errorf("%s.%s has no Example", pkg, name)
			}
		}
	}
}

// declaredIn returns the exported functions of a folder, and of what there are Examples.
func declaredIn(t *testing.T, dir string) (functions []string, examples map[string]bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(len(files), err)
	}
	examples = map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil {
				continue
			}
			name := f.Name.Name
			switch shown, isExample := strings.CutPrefix(name, "Example"); {
			case !strings.HasSuffix(file, "_test.go") && f.Name.IsExported():
				functions = append(functions, name)
			case isExample:
				shown, _, _ = strings.Cut(shown, "_")
				examples[shown] = true
			}
		}
	}
	return functions, examples
}
