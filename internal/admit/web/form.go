package web

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"

	"github.com/latchkit/latchkit/internal/admit"
)

// Form reads the only value of a field of the body, urlencoded or multipart; never from the query. Where the form was
// parsed before, and the body is gone with it, it goes by what was parsed.
func Form(name string) Value[*http.Request] {
	RequireName("Form", name)
	what := "form field " + quoted(name)
	return func(r *http.Request) (string, error) {
		kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil {
			return "", admit.Malformed("the body, which must be a form,", err)
		}
		var values []string
		switch kind {
		case "application/x-www-form-urlencoded":
			values, err = urlencoded(r, name)
		case "multipart/form-data":
			values, err = fromMultipart(r, name, params["boundary"])
		default:
			return "", admit.Malformed("the body, which must be a form,", nil)
		}
		if err != nil {
			return "", err
		}
		return only(what, values...)
	}
}

func urlencoded(r *http.Request, name string) ([]string, error) {
	if parsed := r.PostForm[name]; len(parsed) > 0 {
		return parsed, nil
	}
	body, err := Body(r)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, admit.Malformed("the form", err)
	}
	return form[name], nil
}

func fromMultipart(r *http.Request, name, boundary string) ([]string, error) {
	if r.MultipartForm != nil {
		return r.MultipartForm.Value[name], nil
	}
	body, err := Body(r)
	if err != nil {
		return nil, err
	}
	if boundary == "" {
		return nil, admit.Malformed("the form", nil)
	}
	var values []string
	parts := multipart.NewReader(bytes.NewReader(body), boundary)
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return values, nil
		}
		if err != nil {
			return nil, admit.Malformed("the form", err)
		}
		if part.FormName() != name || part.FileName() != "" {
			continue
		}
		value, err := io.ReadAll(part)
		if err != nil {
			return nil, admit.Malformed("the form", err)
		}
		values = append(values, string(value))
	}
}
