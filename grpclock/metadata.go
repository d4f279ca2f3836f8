package grpclock

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/latchkit/latchkit/internal/admit"
)

// Metadata is the value of the call's metadata under name, in any case: Metadata("idempotency-key") gives
// "idempotency-key:value". Missing, empty or given twice is INVALID_ARGUMENT. Values under a name that ends in "-bin"
// are any bytes.
func Metadata(name string) KeyFunc {
	lower := strings.ToLower(name)
	if lower == "" || strings.Trim(lower, "0123456789abcdefghijklmnopqrstuvwxyz-_.") != "" {
		panic(fmt.Sprintf("grpclock: Metadata(%q): no client can send that name", name))
	}
	return keyFunc(header{lower, fmt.Sprintf("metadata %q", lower)})
}

type header struct{ name, what string }

func (h header) read(ctx context.Context, _ string, _ any) (name, value string, err error) {
	values := metadata.ValueFromIncomingContext(ctx, h.name)
	switch {
	case len(values) == 0, len(values) == 1 && values[0] == "":
		return "", "", admit.Missing(h.what)
	case len(values) > 1:
		return "", "", admit.Repeated(h.what)
	}
	return h.name, values[0], nil
}

func (header) needsMessage(string) bool { return false }
