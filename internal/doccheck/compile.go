package doccheck

import (
	"bufio"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// compile checks programs as the compiler does, each by itself, and returns everything that is wrong with them. The
// packages that they import come compiled from the build cache, all at one request, and the programs themselves need no
// code: a hundred of them take less than one that is linked.
func compile(programs []string) ([]error, error) {
	fset := token.NewFileSet()
	var files []*ast.File
	var wrong []error
	for _, text := range programs {
		file, err := parser.ParseFile(fset, "block.go", text, parser.SkipObjectResolution)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		files = append(files, file)
	}
	exports, err := compiled(imported(files))
	if err != nil {
		return nil, err
	}
	config := types.Config{
		Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }),
		Error:    func(err error) { wrong = append(wrong, err) },
	}
	for _, file := range files {
		_, _ = config.Check(file.Name.Name, fset, []*ast.File{file}, nil) // Error has been told
	}
	return wrong, nil
}

func imported(files []*ast.File) []string {
	var paths []string
	for _, file := range files {
		for _, spec := range file.Imports {
			if path, err := strconv.Unquote(spec.Path.Value); err == nil {
				paths = append(paths, path)
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// compiled returns the file with the types of each package of paths, and of all that they import in turn.
func compiled(paths []string) (map[string]string, error) {
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, paths...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if failure := (*exec.ExitError)(nil); errors.As(err, &failure) {
		return nil, fmt.Errorf("%w: %s", err, failure.Stderr)
	}
	files := make(map[string]string)
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		path, file, _ := strings.Cut(lines.Text(), " ")
		files[path] = file
	}
	return files, err
}
