package core

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// Re-entry across processes. A service that holds order 42 calls another, which locks order 42 as well. Without more, the
// two wait for each other. With it the first exports its lease as a token, the second puts the token into the context
// of what it does for the first, and its Acquire takes part in the hold: the same fence, a lease and renewals of its
// own, and the key is freed with the last of them, in whatever order they end.
//
// A token says that its bearer acts for the holder, so it is for services that trust each other, and is kept out of logs.
// It is signed (HMAC-SHA256) over key, kind, owner, fence and expiry with a secret that both ends have been given; the
// owner in it is masked, so that a token does not tell it. grpclock carries tokens in the metadata of calls: its client
// sends ExportOwners, its server hands what came to ContextWithOwner.

// minSecret is how many bytes a secret has at least.
const minSecret = 16

// Export returns a token under which another process may take part in the lease's hold, until ttl has passed (up to
// 24 h) or the hold has ended. secret has 16 bytes or more, and is the same on both ends; their clocks should agree
// within much less than ttl. From then on the key goes back to the backend with the last who takes part: the lease is
// not passed on inside this process.
//
// ErrInvalidOption: a secret or ttl out of range, a limited hold, whose permit is for one, or a Backend that cannot
// count. ErrLost, ErrNotHeld: the lease has ended. ErrUnavailable: it is held without the store, so nobody else knows it.
func (l *Lease) Export(secret []byte, ttl time.Duration) (string, error) {
	switch {
	case len(secret) < minSecret:
		return "", invalid("Export", fmt.Sprintf("a secret of %d bytes", len(secret)), "16 bytes or more")
	case ttl <= 0 || ttl > MaxTTL:
		return "", invalid("Export", ttl, "more than 0, up to 24h")
	case l == nil || l.hold == nil:
		return "", fmt.Errorf("%w: no lease to export", ErrNotHeld)
	}
	if err := l.heldError(); err != nil {
		return "", err
	}
	c, err := l.carry()
	if err != nil {
		return "", err
	}
	c.until = time.Now().Add(ttl)
	return c.sign(secret), nil
}

// carry makes the hold one that is counted.
func (l *Lease) carry() (*carried, error) {
	t := l.hold.tenure
	t.gate.shard.Lock()
	defer t.gate.shard.Unlock()
	switch {
	case t.state != held || t.hold != l.hold || l.released:
		return nil, fmt.Errorf("%w: %q was released before", ErrNotHeld, l.key)
	case t.degraded:
		return nil, fmt.Errorf("%w: %q is held without the store", ErrUnavailable, l.key)
	case t.want.Kind == Limited:
		return nil, fmt.Errorf("%w: Export of %q: a permit is for one", ErrInvalidOption, l.key)
	}
	want := t.want
	if want.Join == "" {
		want.Join = t.owner
	}
	if err := l.locks.supports(want); err != nil {
		return nil, err
	}
	t.exported, t.want.Join = true, want.Join
	return &carried{name: lockName(t.gate.key), kind: t.want.Kind, owner: want.Join, fence: l.hold.fence}, nil
}

func (locks *Locks) supports(h Hold) error {
	if sup, ok := locks.backend.(Supporter); ok {
		return sup.Supports(h)
	}
	return nil
}

// ExportOwners returns a token, as Export does, for each hold under which ctx runs: of its leases, and of those that
// came with ContextWithOwner, so that a chain of calls may be longer than one. What cannot be exported is left out.
func ExportOwners(ctx context.Context, secret []byte, ttl time.Duration) (tokens []string) {
	done := map[string]bool{}
	lease, _ := FromContext(ctx)
	for ; lease != nil; lease = lease.outer {
		if lease.hold == nil || done[lease.hold.tenure.gate.key] {
			continue
		}
		if token, err := lease.Export(secret, ttl); err == nil {
			tokens = append(tokens, token)
			done[lease.hold.tenure.gate.key], done[lockName(lease.hold.tenure.gate.key)] = true, true
		}
	}
	first, _ := ctx.Value(carriedKey{}).(*carried)
	for c := first; c != nil; c = c.next {
		if !done[c.name] && time.Now().Before(c.until) && len(secret) >= minSecret {
			done[c.name] = true
			tokens = append(tokens, c.sign(secret))
		}
	}
	return tokens
}

// ContextWithOwner returns ctx as one whose Acquires of the token's key take part in the hold that was exported. One that
// comes when that hold has ended is ErrLost, for the work that it belongs to is not protected any more. A token that is
// forged, signed with another secret, damaged or expired is ignored, and counted: ctx is returned as it is.
func ContextWithOwner(ctx context.Context, secret []byte, token string) context.Context {
	c, err := readToken(secret, token)
	if err != nil {
		ownerCounts.forged.Add(1)
		return ctx
	}
	if !time.Now().Before(c.until) {
		ownerCounts.expired.Add(1)
		return ctx
	}
	ownerCounts.accepted.Add(1)
	c.next, _ = ctx.Value(carriedKey{}).(*carried)
	return context.WithValue(ctx, carriedKey{}, c)
}

// OwnerCounts tells what became of the tokens that this process was given.
type OwnerCounts struct {
	Accepted int64
	Forged   int64 // forged, damaged, or signed with another secret
	Expired  int64 // too old when it came, or when it was to be used
	Foreign  int64 // an Acquire under a token was for another key
}

// OwnerTokens returns the counts since the start of the process.
func OwnerTokens() OwnerCounts {
	return OwnerCounts{ownerCounts.accepted.Load(), ownerCounts.forged.Load(), ownerCounts.expired.Load(),
		ownerCounts.foreign.Load()}
}

var ownerCounts struct{ accepted, forged, expired, foreign atomic.Int64 }

// carried is a hold of another process.
type carried struct {
	name  string // the lock's name in the backend
	kind  Kind
	owner string
	fence int64
	until time.Time
	next  *carried
}

type carriedKey struct{}

// carriedFor returns the hold of another process on whose behalf ctx runs, when it is one of key.
func carriedFor(ctx context.Context, key string) *carried {
	if ownerCounts.accepted.Load() == 0 {
		return nil // nothing was ever carried, so there is nothing to look for
	}
	first, _ := ctx.Value(carriedKey{}).(*carried)
	if first == nil {
		return nil
	}
	name := lockName(key)
	for c := first; c != nil; c = c.next {
		if c.name != name {
			continue
		}
		if time.Now().Before(c.until) {
			return c
		}
		ownerCounts.expired.Add(1)
		return nil
	}
	ownerCounts.foreign.Add(1)
	return nil
}

// join takes part in a hold of another process. It passes the gate by: who waits there waits for that hold.
func (a *acquisition) join(c *carried) (*Lease, error) {
	if err := a.within(c.kind); err != nil {
		return nil, err
	}
	a.want.Kind, a.want.Limit, a.want.Fair, a.want.Replicas, a.want.Join = c.kind, 0, false, 0, c.owner
	if err := a.locks.supports(a.want); err != nil {
		return nil, err
	}
	began := time.Now()
	defer func() { a.stats.inBackend += time.Since(began) }()
	limit := began.Add(tripLimit)
	for n := 1; ; n++ {
		a.stats.attempts++
		op := &Op{Action: Try, Hold: a.want, Owner: newToken(), Fences: 1}
		sent := time.Now()
		op, err := a.locks.trips.do(a.trip, a.ctx, op, limit)
		if err != nil {
			return nil, a.ended(err)
		}
		a.judge(op, sent)
		switch {
		case again(op, n) && backoff(a.ctx, n, limit):
			continue
		case op.Err != nil:
			return nil, fmt.Errorf("latchkit: acquire %q: %w", a.key, op.Err)
		case op.Verdict != Granted:
			return nil, lossError("%q is not held any more by the caller for whom this is done", a.key)
		}
		return a.takePart(op, sent, c.fence)
	}
}

// takePart is establish for a hold that began elsewhere.
func (a *acquisition) takePart(op *Op, sent time.Time, fence int64) (*Lease, error) {
	locks := a.locks
	if err := ended(a.ctx); err != nil {
		locks.undo.add(op, true)
		return nil, a.ended(err)
	}
	shard := locks.gates.shard(a.want.Key)
	shard.Lock()
	defer shard.Unlock()
	if !locks.live.add() {
		locks.undo.add(op, true)
		return nil, ErrClosed
	}
	g := shard.open(a.want.Key)
	t := a.newTenure(g, op, sent)
	t.exported, t.fenced = true, 0
	g.tenures = append(g.tenures, t)
	lease := t.newLease(a, fence, a.answered)
	lease.bound(a.maxHold)
	locks.watchdog.put(t, t.nextEvent())
	return lease, nil
}

// A token is base64url(payload, mac). The payload: version, kind, expiry (ms since 1970), fence, nonce, masked owner,
// name of the lock.
const (
	tokenVersion = 1
	tokenNonce   = 16
	tokenHead    = 1 + 1 + 8 + 8 + tokenNonce + 16
)

var tokenText = base64.RawURLEncoding.Strict()

var errToken = errors.New("latchkit: not a token of ours")

func (c *carried) sign(secret []byte) string {
	p := make([]byte, 0, tokenHead+len(c.name)+sha256.Size)
	p = append(p, tokenVersion, byte(c.kind))
	p = binary.BigEndian.AppendUint64(p, uint64(c.until.UnixMilli()))
	p = binary.BigEndian.AppendUint64(p, uint64(c.fence))
	var nonce [tokenNonce]byte
	rand.Read(nonce[:]) // never fails; see its documentation
	p = append(p, nonce[:]...)
	owner, _ := hex.DecodeString(c.owner)
	p = append(p, mask(secret, nonce[:], owner)...)
	p = append(p, c.name...)
	return tokenText.EncodeToString(append(p, mac(secret, "token", p)...))
}

// readToken returns what a genuine token says. It does not look at its expiry.
func readToken(secret []byte, token string) (*carried, error) {
	if len(secret) < minSecret {
		return nil, errToken
	}
	raw, err := tokenText.DecodeString(token)
	if err != nil || len(raw) <= tokenHead+sha256.Size || strings.ContainsAny(token, "\r\n") { // which decoders skip
		return nil, errToken
	}
	p, sum := raw[:len(raw)-sha256.Size], raw[len(raw)-sha256.Size:]
	if !hmac.Equal(sum, mac(secret, "token", p)) || p[0] != tokenVersion {
		return nil, errToken
	}
	nonce, masked := p[18:18+tokenNonce], p[18+tokenNonce:tokenHead]
	return &carried{
		kind:  Kind(p[1]),
		until: time.UnixMilli(int64(binary.BigEndian.Uint64(p[2:]))),
		fence: int64(binary.BigEndian.Uint64(p[10:])),
		owner: hex.EncodeToString(mask(secret, nonce, masked)),
		name:  string(p[tokenHead:]),
	}, nil
}

// mask hides an owner of 16 bytes, or shows it again: a pad that the secret makes of the nonce, used once.
func mask(secret, nonce, owner []byte) []byte {
	pad := mac(secret, "owner", nonce)
	masked := make([]byte, len(owner))
	for i := range owner {
		masked[i] = owner[i] ^ pad[i]
	}
	return masked
}

// mac is the HMAC-SHA256 of text for one use of the secret.
func mac(secret []byte, use string, text []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("latchkit " + use + "\x00"))
	h.Write(text)
	return h.Sum(nil)
}
