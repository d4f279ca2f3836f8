package web

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/admit"
)

// Enter takes the key for r; see admit.Guard. ctx is the request's.
func (s *Settings) Enter(ctx context.Context, r *http.Request, key string) (*core.Lease, *admit.Verdict) {
	if key != "" {
		readAhead(r)
	}
	return s.Guard.Enter(ctx, key)
}

// readAhead reads a small body before the lock is asked for. Over HTTP/1 the server sees that a client has gone only when
// it has nothing more to read from it: with the body on the connection, a caller that nobody waits for would keep its
// place in the queue. Besides, no lock is held then while a slow client sends.
//
// A body of unknown length may go on for as long as the handler talks to its client, and one that the client keeps back
// until it is asked for (Expect: 100-continue) is not to be asked for in vain: both stay unread.
func readAhead(r *http.Request) {
	if r.ProtoMajor != 1 || r.ContentLength < 1 || r.ContentLength > firstRead || r.Header.Get("Expect") != "" {
		return
	}
	if _, given := Given(r); given || r.Body == nil {
		return
	}
	data, err := readUpTo(r, firstRead)
	switch {
	case err != nil:
		giveBack(r, data, failing{err}) // the handler's to see, where it comes
	case len(data) > firstRead:
		giveBack(r, data, r.Body) // a middleware further out makes more of it than was sent
	default:
		GiveBody(r, data)
	}
}

// giveBack makes data, and then rest, what is read from r.Body.
func giveBack(r *http.Request, data []byte, rest io.Reader) {
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(data), rest), r.Body}
}

// failing is the end of a body that could not be read.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
