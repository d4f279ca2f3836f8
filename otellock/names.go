package otellock

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"
)

// The names of the spans.
const (
	spanAcquire = "lock.acquire"
	spanRelease = "lock.release"
	spanRenew   = "lock.renew"
)

// The events on an acquire's span that enclose the wait for another holder.
const (
	eventWaitStart = "latchkit.wait.start"
	eventWaitEnd   = "latchkit.wait.end"
)

// The attributes. Durations are in seconds.
const (
	attrBackend  = attribute.Key("latchkit.backend")
	attrKind     = attribute.Key("latchkit.kind")
	attrName     = attribute.Key("latchkit.name")
	attrKey      = attribute.Key("latchkit.key")
	attrTTL      = attribute.Key("latchkit.ttl")
	attrFair     = attribute.Key("latchkit.fair")
	attrMaxWait  = attribute.Key("latchkit.max_wait")
	attrOutcome  = attribute.Key("latchkit.outcome")
	attrAttempts = attribute.Key("latchkit.attempts")
	attrWaited   = attribute.Key("latchkit.waited")
	// The parts of latchkit.waited.
	attrWaitedGate    = attribute.Key("latchkit.waited_gate")
	attrWaitedBackend = attribute.Key("latchkit.waited_backend")
	attrWaitedHolder  = attribute.Key("latchkit.waited_holder")
	attrFence         = attribute.Key("latchkit.fence")
	attrDegraded      = attribute.Key("latchkit.degraded")
	attrReentry       = attribute.Key("latchkit.reentry")
	attrHandOff       = attribute.Key("latchkit.handoff")
	attrCompleted     = attribute.Key("latchkit.completed")
	attrSlack         = attribute.Key("latchkit.slack")
	attrLink          = attribute.Key("latchkit.link")
	attrEnd           = attribute.Key("latchkit.end")
	attrReason        = attribute.Key("latchkit.reason")
	attrNode          = attribute.Key("latchkit.node")
	attrState         = attribute.Key("latchkit.state")
	attrFrom          = attribute.Key("latchkit.from")
	attrTo            = attribute.Key("latchkit.to")
	// The one name that is not ours: every OpenTelemetry backend knows it.
	attrErrorType = attribute.Key("error.type")
)

// The values of latchkit.link.
const (
	linkAcquire = "acquire" // from a release or a failed renewal to the acquire of its hold
	linkHolder  = "holder"  // from an acquire to that of the holder that kept it out
)

// other stands for a value beyond those that are told apart, as in OpenTelemetry's own conventions.
const other = "_OTHER"

const (
	unnamed     = "unnamed" // the class of every key without WithName
	maxClasses  = 200       // of keys; WithName maps to few, and a mistake in it must not flood the metrics
	maxProfiles = 1000      // classes, each with the TTLs it is locked with
	maxClass    = 128       // bytes of a class
	maxKey      = 512       // bytes of a key on a span
)

// text returns s fit for an attribute: cut to limit bytes, and valid UTF-8, since OTLP loses a whole batch of spans
// over one string that is not.
func text(s string, limit int) string {
	return strings.ToValidUTF8(s[:min(len(s), limit)], "\uFFFD")
}
