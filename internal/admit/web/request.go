package web

import (
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/latchkit/latchkit/internal/admit"
)

// Header reads the only value of a header.
func Header(name string) Value[*http.Request] {
	RequireName("Header", name)
	what := "header " + quoted(name)
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	if canonical == "Host" { // net/http keeps it apart
		return func(r *http.Request) (string, error) { return only(what, r.Host) }
	}
	return func(r *http.Request) (string, error) { return only(what, r.Header[canonical]...) }
}

// Cookie reads the only cookie of that name.
func Cookie(name string) Value[*http.Request] {
	RequireName("Cookie", name)
	what := "cookie " + quoted(name)
	return func(r *http.Request) (string, error) {
		cookies := r.CookiesNamed(name)
		switch len(cookies) {
		case 0:
			return "", admit.Missing(what)
		case 1:
			return only(what, cookies[0].Value)
		default:
			return "", admit.Repeated(what)
		}
	}
}

// Query reads the only value of a parameter in the URL's query. Like net/url it takes no notice of other pairs, be they
// malformed; of its own it wants exactly one that is right.
func Query(name string) Value[*http.Request] {
	RequireName("Query", name)
	what := "query parameter " + quoted(name)
	return func(r *http.Request) (string, error) {
		value, found := "", false
		for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
			rawName, rawValue, _ := strings.Cut(pair, "=")
			if n, err := url.QueryUnescape(rawName); err != nil || n != name {
				continue
			}
			if found {
				return "", admit.Repeated(what)
			}
			v, err := url.QueryUnescape(rawValue)
			if err != nil || strings.Contains(pair, ";") { // net/url drops pairs with a semicolon
				return "", admit.Malformed(what, err)
			}
			value, found = v, true
		}
		return only(what, value)
	}
}

// only returns the value when there is exactly one and it is not empty.
func only(what string, values ...string) (string, error) {
	switch {
	case len(values) > 1:
		return "", admit.Repeated(what)
	case len(values) == 0 || values[0] == "":
		return "", admit.Missing(what)
	default:
		return values[0], nil
	}
}
