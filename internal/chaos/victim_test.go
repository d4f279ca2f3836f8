package chaos

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/history"
)

// victimProcess is a victim's name in histories.
const victimProcess = "victim"

// victimTTL outlasts a failover. It is not renewed meanwhile.
const victimTTL = 30 * time.Second

// victim is a holder in this process, for a fault to meet: it shows that the second holder which such a fault lets in
// is real, and what becomes of the first.
type victim struct {
	*arena
	locks    *core.Locks
	recorder *history.Recorder
	register *history.RemoteRegister

	entry         *history.Entry
	lease         *core.Lease
	fenced, plain int64
}

// victim opens its way to the servers, which must be well.
func (a *arena) victim() *victim {
	a.Helper()
	backend, closeClients, err := a.order.open()
	if err != nil {
		a.Fatal(err)
	}
	a.Cleanup(closeClients)
	v := &victim{arena: a}
	if v.locks, err = core.New(backend, core.WithTTL(victimTTL), core.WithoutRenewal()); err != nil {
		a.Fatal(err)
	}
	a.Cleanup(func() {
		limit, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		v.locks.Close(limit)
	})
	path := filepath.Join(a.TempDir(), victimProcess)
	if v.recorder, err = history.Create(path, victimProcess); err != nil {
		a.Fatal(err)
	}
	a.Cleanup(func() { v.recorder.Close() })
	a.paths = append(a.paths, path)
	if v.register, err = history.DialRegister(a.order.Register); err != nil {
		a.Fatal(err)
	}
	a.Cleanup(func() { v.register.Close() })
	v.hold()
	v.entry.Releasing()
	err = v.lease.Release(a.Context())
	v.entry.Released(err)
	if err != nil {
		a.Fatal(err)
	}
	return v
}

// hold takes stagedKey.
func (v *victim) hold() {
	v.Helper()
	v.await("a victim holds", func() (granted bool) {
		v.entry = v.recorder.Ask(history.Request{Key: stagedKey})
		var err error
		if v.lease, err = v.locks.Acquire(context.Background(), stagedKey, core.WithWait(time.Second)); err != nil {
			v.entry.Refused(err)
			return false
		}
		v.entry.Got(v.lease)
		if v.fenced, v.plain, _, err = v.register.Claim(stagedKey, v.lease.Fence()); err != nil {
			v.Fatal(err)
		}
		return true
	})
}

// joined tells whether a worker has held the key since the victim took it.
func (v *victim) joined() bool {
	return v.someHold(func(r report) bool { return r.key == stagedKey && r.fence > v.lease.Fence() })
}

// robbed waits for somebody to hold beside the victim, and demands that the victim is told when it asks, and that its
// write is refused for its fence.
func (v *victim) robbed() {
	v.Helper()
	v.await("somebody holds beside the victim", func() bool { return v.joined() || v.lease.Remaining() == 0 })
	if v.lease.Remaining() == 0 {
		v.Log("nobody came while the victim held: this machine is too busy to show it")
		return
	}
	if err := v.lease.Extend(v.Context(), victimTTL); !errors.Is(err, core.ErrLost) {
		v.Errorf("the victim asks for more time, and is told %v, want ErrLost", err)
	}
	v.entry.Lost()
	if ok, err := v.register.Write(stagedKey, v.lease.Fence(), v.fenced+1, v.plain+1); ok || err != nil {
		v.Errorf("the victim's late write was accepted by the fence, %v", err)
	}
	v.entry.Releasing()
	err := v.lease.Release(v.Context())
	v.entry.Released(err)
	if !errors.Is(err, core.ErrLost) {
		v.Errorf("the victim releases, and is told %v, want ErrLost", err)
	}
}
