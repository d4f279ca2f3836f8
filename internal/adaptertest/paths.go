package adaptertest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// RunPaths runs the cases in which the engine of a framework takes part: how it finds routes and parameters.
func RunPaths(t *testing.T, h HTTP) {
	quiet(t)
	for _, c := range httpCases {
		switch c.name {
		case "keys", "levels", "escaped paths", "trailing slash", "R8 no route matched", "R8 undeclared parameter":
			t.Run(c.name, func(t *testing.T) { c.run(t, h, "HTTP/1.1") })
		}
	}
	t.Run("random paths", func(t *testing.T) { randomPaths(t, h) })
}

// randomPaths: a thousand random writings of one resource's path have one key, and another resource has another.
func randomPaths(t *testing.T, h HTTP) {
	random := rand.New(rand.NewPCG(3, 4))
	keyOf := keyOfPath(t, h)
	resources := map[string]string{} // key → resource
	for _, resource := range []string{"ab", "a b", "a+b", "a%b", "a%62", "a%2562", "a:b", "é", "{a}", `\(a\)`, "a;b=c", "a?b#c", "~", "x.y"} {
		first := keyOf(randomPath(random, resource))
		for range 1000 {
			path := randomPath(random, resource)
			if key := keyOf(path); key != first || key == "" {
				t.Fatalf("%s has the key %q, another writing of %q %q", path, key, resource, first)
			}
		}
		if other, taken := resources[first]; taken {
			t.Fatalf("%q and %q both have the key %q", resource, other, first)
		}
		resources[first] = resource
	}
}

// FuzzPath: two paths have one key if and only if they name one resource.
func FuzzPath(f *testing.F, h HTTP) {
	f.Add("a", "a", uint64(1))
	f.Add("a%62", "ab", uint64(2))
	f.Add("a+b", "a b", uint64(3))
	f.Add("{a}", `\(a\)`, uint64(4))
	f.Fuzz(func(t *testing.T, a, b string, seed uint64) {
		for _, resource := range []string{a, b} {
			if resource == "" || resource == "." || resource == ".." || strings.Contains(resource, "/") {
				t.Skip("no router gives this as the value of one parameter")
			}
		}
		keyOf, random := keyOfPath(t, h), rand.New(rand.NewPCG(seed, 5))
		x, y := randomPath(random, a), randomPath(random, b)
		if kx, ky := keyOf(x), keyOf(y); (a == b) != (kx == ky) || kx == "" || ky == "" {
			t.Errorf("%s has the key %q, %s %q", x, kx, y, ky)
		}
	})
}

// keyOfPath returns what gives the key that the adapter finds in a path, without a connection.
func keyOfPath(t *testing.T, h HTTP) func(path string) string {
	locker := newRecorder(t)
	handler := h.Mount(t, Route{Method: http.MethodPost, Path: "/o/:id", Key: byParam("id"), Options: HTTPOptions{Options: Options{Locker: locker}},
		Handler: func(http.ResponseWriter, *http.Request) error { return nil }})
	return func(path string) string {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, nil))
		return strings.Join(locker.take(), " and ")
	}
}

// randomPath writes the path of a resource, and escapes by chance what need not be.
func randomPath(random *rand.Rand, resource string) string {
	path := "/o/"
	for i := range len(resource) {
		switch c := resource[i]; {
		case isPathChar(c) && random.IntN(2) == 0:
			path += string(rune(c))
		case random.IntN(2) == 0:
			path += fmt.Sprintf("%%%02X", c)
		default:
			path += fmt.Sprintf("%%%02x", c)
		}
	}
	return path
}

// isPathChar tells whether RFC 3986 lets c stand in a segment as it is.
func isPathChar(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~!$&'()*+,;=:@", c) >= 0
}
