package httplock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/latchkit/latchkit/internal/admit"
)

// StatusClientGone is what a request gets whose client went away while it waited: nobody reads it but the access log.
const StatusClientGone = 499

// The types of a Refusal. Each is the URL of its description.
const (
	TypeBusy        = types + "Busy"
	TypeCompleted   = types + "Completed"
	TypeBadKey      = types + "Bad_key"
	TypeTooLarge    = types + "Too_large"
	TypeUnavailable = types + "Unavailable"
	TypeInternal    = types + "Internal"
	// TypeBlank says no more than the status does.
	TypeBlank = "about:blank"

	types = "https://pkg.go.dev/github.com/latchkit/latchkit/httplock#hdr-"
)

// Refusal is why a request was turned away, as the client is to see it. Error handlers get it as an error; through
// errors.Is and errors.As the cause is found: core.ErrNotAcquired, core.ErrUnavailable, core.ErrInvalidKey, ...
type Refusal struct {
	// Status of the answer: 400, 409, 413, 499, 500 or 503.
	Status int
	// Type and Title are those of the problem (RFC 9457); Detail is more about this one, often empty. They repeat
	// nothing that the client has sent, nor what went wrong inside.
	Type, Title, Detail string
	// RetryAfter is when to come again; 0: no advice.
	RetryAfter time.Duration

	cause error
}

// Error is for logs: it has the cause, with the key.
func (r *Refusal) Error() string {
	return fmt.Sprintf("latchkit: refused with %d: %v", r.Status, r.cause)
}

// Unwrap gives the cause.
func (r *Refusal) Unwrap() error { return r.cause }

// Write answers the request: a problem of type application/problem+json with Retry-After, or the bare status when the
// client has gone. It must not follow another answer.
func (r *Refusal) Write(w http.ResponseWriter) {
	r.Advise(w.Header())
	if r.Status == StatusClientGone {
		w.WriteHeader(r.Status)
		return
	}
	body, ok := bodies[r.problem()]
	if !ok {
		body, _ = r.MarshalJSON() // of strings and a number
	}
	w.Header()["Content-Type"] = problemType
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(r.Status)
	_, _ = w.Write(body) // a client that does not read its answer is no concern of ours
}

// Advise sets the header Retry-After, in whole seconds rounded up, where there is advice.
func (r *Refusal) Advise(header http.Header) {
	if r.RetryAfter > 0 {
		seconds := (r.RetryAfter + time.Second - 1) / time.Second
		header.Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
	}
}

var problemType = []string{"application/problem+json"}

// problem is what the client reads.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
}

func (r *Refusal) problem() problem { return problem{r.Type, r.Title, r.Status, r.Detail} }

// MarshalJSON gives the members of the problem.
func (r *Refusal) MarshalJSON() ([]byte, error) { return json.Marshal(r.problem()) }

// bodies are those of replies, written once: duplicates come in crowds.
var bodies = func() map[problem][]byte {
	all := map[problem][]byte{}
	for _, r := range replies {
		all[r.problem()], _ = r.MarshalJSON()
	}
	return all
}()

// RefusalOf turns an error of core.Acquire under ctx, or of a KeyFunc, into what this package would answer: for handlers
// that lock by hand. What only the people who run the service can mend is logged.
func RefusalOf(ctx context.Context, err error) *Refusal {
	v, ok := errors.AsType[*admit.Verdict](err)
	if !ok {
		v = new(admit.Guard).Refuse(ctx, err)
	}
	r := replies[v.Row]
	r.RetryAfter, r.cause = v.RetryAfter, v.Err
	if text := v.Text(); text != "" {
		r.Detail = text
	}
	return &r
}

// replies is the table of replies, for HTTP.
var replies = map[admit.Row]Refusal{
	admit.Busy: {Status: http.StatusConflict, Type: TypeBusy,
		Title: "The resource is busy", Detail: "Another request for this resource is being handled."},
	admit.Completed: {Status: http.StatusConflict, Type: TypeCompleted,
		Title: "The request was completed", Detail: "Not long ago, a request for this resource was completed."},
	admit.BadKey: {Status: http.StatusBadRequest, Type: TypeBadKey,
		Title: "The request has no usable key"},
	admit.TooLarge: {Status: http.StatusRequestEntityTooLarge, Type: TypeTooLarge,
		Title: "The body is too large"},
	admit.Unavailable: {Status: http.StatusServiceUnavailable, Type: TypeUnavailable,
		Title: "The resource cannot be locked now", Detail: "The request cannot be handled now."},
	admit.LeaseLost: {Status: http.StatusServiceUnavailable, Type: TypeUnavailable,
		Title: "The resource cannot be locked now", Detail: "The request was interrupted."},
	admit.Deadline: {Status: http.StatusServiceUnavailable, Type: TypeUnavailable,
		Title: "The resource cannot be locked now", Detail: "The request has waited for too long."},
	admit.Gone: {Status: StatusClientGone, Type: TypeBlank, Title: "The client has gone"},
	admit.Misuse: {Status: http.StatusInternalServerError, Type: TypeInternal,
		Title: "Internal error"},
}
