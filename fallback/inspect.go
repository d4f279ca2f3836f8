package fallback

import (
	"context"
	"fmt"
	"time"

	"github.com/latchkit/latchkit/core"
)

// Inspect implements core.Inspector. While the breaker is not closed it tells of what this process knows; else what the
// backend says, and besides it the holders of this process of whom the backend does not know.
func (b *Backend) Inspect(ctx context.Context, key string) (core.Info, error) {
	inspector, ok := b.inner.(core.Inspector)
	if !ok {
		return core.Info{}, b.noInspector()
	}
	now := time.Now()
	grants, mark := b.ledger.snapshot(key, now)
	n := b.node(b.inner.Route(key))
	if !n.closed() {
		info := core.Info{Key: key, Backend: b.Name(), Waiters: -1}
		addHolders(&info, grants, now)
		if !info.Held && now.Before(mark) {
			info.Completed = true
			info.Holders = []core.Holder{{Remaining: mark.Sub(now), Count: 1}}
		}
		return info, nil
	}
	info, err := inspector.Inspect(ctx, key)
	if err != nil {
		return info, err
	}
	unknown := grants[:0]
	for _, g := range grants {
		if g.homemade() {
			unknown = append(unknown, g)
		}
	}
	addHolders(&info, unknown, now)
	return info, nil
}

func addHolders(info *core.Info, grants []grant, now time.Time) {
	if len(grants) > 0 && !info.Held {
		info.Held, info.Completed, info.Kind, info.Holders = true, false, grants[0].hold.Kind, nil
	}
	for _, g := range grants {
		info.Holders = append(info.Holders, core.Holder{Label: g.hold.Label, Remaining: g.until.Sub(now), Count: 1, Here: true})
	}
}

// ForceRelease implements core.Inspector. While the breaker is not closed it can take the key from holders of this
// process only, and says core.ErrUnavailable when there are none.
func (b *Backend) ForceRelease(ctx context.Context, key string) error {
	inspector, ok := b.inner.(core.Inspector)
	if !ok {
		return b.noInspector()
	}
	n := b.node(b.inner.Route(key))
	closed := n.closed()
	if closed {
		if err := inspector.ForceRelease(ctx, key); err != nil {
			return err
		}
	}
	ended := b.ledger.clear(key, time.Now())
	b.watches.wake(key, "")
	if closed {
		return nil
	}
	for _, g := range ended {
		n.owe(g, false)
	}
	if len(ended) == 0 {
		return n.unavailable()
	}
	return nil
}

func (b *Backend) noInspector() error {
	return fmt.Errorf("%w: the backend %q cannot inspect", core.ErrInvalidOption, b.Name())
}
