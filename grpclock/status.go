package grpclock

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/latchkit/latchkit/internal/admit"
)

// ErrorDomain is the domain of the ErrorInfo in every refusal's status.
const ErrorDomain = "latchkit"

// The reasons in a refusal's ErrorInfo.
const (
	ReasonBusy        = "LOCK_BUSY"          // ABORTED: another call holds the key
	ReasonCompleted   = "LOCK_COMPLETED"     // ALREADY_EXISTS: a call has completed, and the key cools down
	ReasonInvalidKey  = "LOCK_KEY_INVALID"   // INVALID_ARGUMENT: the call carries no usable key
	ReasonUnavailable = "LOCK_UNAVAILABLE"   // UNAVAILABLE: the lock's backend cannot serve
	ReasonWaitEnded   = "LOCK_WAIT_ENDED"    // DEADLINE_EXCEEDED, CANCELLED: the call ended while it waited
	ReasonMisuse      = "LOCK_MISCONFIGURED" // INTERNAL: a mistake in the set-up, which the server has logged
	ReasonLeaseLost   = "LOCK_LEASE_LOST"    // ABORTED: the lease ended under the handler
)

// refusal is the error of a call that was refused: a status for the client, the reason for those further out on the
// server. Its text is the status's, so that wrapping it shows the client nothing more.
type refusal struct {
	status *status.Status
	cause  error
}

func (r *refusal) Error() string              { return r.status.String() }
func (r *refusal) GRPCStatus() *status.Status { return r.status }
func (r *refusal) Unwrap() error              { return r.cause }

// refuse turns a verdict under ctx into the call's error, and says in the trailer when a client's own retries may come
// again.
func refuse(ctx context.Context, v *admit.Verdict, setTrailer func(metadata.MD)) error {
	code, reason, message := reply(ctx, v)
	details := make([]protoadapt.MessageV1, 0, 2)
	if v.RetryAfter > 0 && v.Row != admit.Deadline {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(v.RetryAfter)})
	}
	details = append(details, &errdetails.ErrorInfo{Reason: reason, Domain: ErrorDomain})
	st := status.New(code, message)
	if detailed, err := st.WithDetails(details...); err == nil {
		st = detailed
	}
	if v.Row == admit.Busy {
		setTrailer(metadata.Pairs(pushbackTrailer, milliseconds(v.RetryAfter)))
	}
	return &refusal{st, v.Err}
}

// pushbackTrailer makes the retries of a client's service config wait: their own backoff knows nothing of the holder.
// It stands on a busy key only. An outage is better met with a backoff that grows, and whether a handler that has run
// in part may run again is not ours to suggest.
//
// Source: https://github.com/grpc/proposal/blob/master/A6-client-retries.md#pushback
const pushbackTrailer = "grpc-retry-pushback-ms"

// milliseconds rounds up, so that nobody comes too early.
func milliseconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

// reply is the table of statuses.
func reply(ctx context.Context, v *admit.Verdict) (code codes.Code, reason, message string) {
	switch v.Row {
	case admit.Busy:
		return codes.Aborted, ReasonBusy, "another request for this resource is being handled"
	case admit.Completed:
		return codes.AlreadyExists, ReasonCompleted, "a request for this resource was completed just now"
	case admit.BadKey, admit.TooLarge:
		return codes.InvalidArgument, ReasonInvalidKey, v.Text()
	case admit.Unavailable:
		return codes.Unavailable, ReasonUnavailable, "the request cannot be handled now"
	case admit.Deadline, admit.Gone:
		return status.FromContextError(ctx.Err()).Code(), ReasonWaitEnded, "the call ended while it waited for its turn"
	case admit.LeaseLost:
		return codes.Aborted, ReasonLeaseLost, "the request was interrupted"
	default:
		return codes.Internal, ReasonMisuse, "the server is not set up to handle this request"
	}
}
