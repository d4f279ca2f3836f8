package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/latchkit/latchkit/internal/admit"
)

// DefaultMaxBody is how much of a body is read for its key unless set otherwise: 1 MiB.
const DefaultMaxBody = 1 << 20

// firstRead is how much memory a body gets on the word of its Content-Length alone.
const firstRead = 64 << 10

// BodyHash reads the whole body and gives its SHA-256.
func BodyHash(r *http.Request) (string, error) {
	body, err := Body(r)
	if err != nil {
		return "", err
	}
	if len(body) == 0 {
		return "", admit.Missing("the body")
	}
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:]), nil
}

// Body reads the whole body and gives it back: whoever reads r.Body next finds all of it. The caller must not change
// the bytes. A second call costs nothing.
func Body(r *http.Request) ([]byte, error) {
	limit := int64(DefaultMaxBody)
	if c, ok := r.Body.(*capped); ok {
		limit = c.limit
	}
	if data, ok := Given(r); ok {
		if int64(len(data)) > limit {
			return nil, admit.TooLargeBody(limit, nil)
		}
		return data, nil
	}
	if r.Body == nil {
		return nil, nil
	}
	if r.ContentLength > limit {
		return nil, admit.TooLargeBody(limit, nil)
	}
	data, err := readAll(r, limit)
	if err != nil {
		return nil, err
	}
	GiveBody(r, data)
	return data, nil
}

// GiveBody makes data what is read from r.Body, from the start. Closing it closes the body that was there. A cap stays.
func GiveBody(r *http.Request, data []byte) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	again := &replay{data: data, source: r.Body}
	again.Reset(data)
	if c, ok := r.Body.(*capped); ok {
		again.source, c.ReadCloser = c.ReadCloser, again
		return
	}
	r.Body = again
}

// Given returns the bytes of a body that was read for its key.
func Given(r *http.Request) ([]byte, bool) {
	body := r.Body
	if c, ok := body.(*capped); ok {
		body = c.ReadCloser
	}
	if again, ok := body.(*replay); ok {
		return again.data, true
	}
	return nil, false
}

// CapBody makes limit the cap for Body, until UncapBody.
func CapBody(r *http.Request, limit int64) {
	if limit != DefaultMaxBody && r.Body != nil && r.Body != http.NoBody {
		r.Body = &capped{ReadCloser: r.Body, limit: limit}
	}
}

// UncapBody puts back a body that was capped and not read.
func UncapBody(r *http.Request) {
	if c, ok := r.Body.(*capped); ok {
		r.Body = c.ReadCloser
	}
}

func readAll(r *http.Request, limit int64) ([]byte, error) {
	data, err := readUpTo(r, limit)
	var tooLarge *http.MaxBytesError
	switch {
	case int64(len(data)) > limit:
		return nil, admit.TooLargeBody(limit, nil)
	case errors.As(err, &tooLarge):
		return nil, admit.TooLargeBody(tooLarge.Limit, err)
	case err != nil:
		return nil, admit.Malformed("the body", err)
	}
	return data, nil
}

// readUpTo reads the body to its end, or until it has more than limit bytes.
func readUpTo(r *http.Request, limit int64) (data []byte, err error) {
	// One byte more than is announced, so that there is room to be told of the end.
	data = make([]byte, 0, max(min(r.ContentLength, firstRead)+1, bytes.MinRead))
	for err == nil && int64(len(data)) <= limit {
		if len(data) == cap(data) {
			data = slices.Grow(data, 1)
		}
		var n int
		n, err = r.Body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
	}
	if err == io.EOF {
		err = nil
	}
	return data, err
}

// replay is a body that was read for its key.
type replay struct {
	bytes.Reader
	data   []byte
	source io.Closer
}

func (b *replay) Close() error {
	return b.source.Close()
}

// capped carries the cap of one middleware to the key functions below it.
type capped struct {
	io.ReadCloser
	limit int64
}
