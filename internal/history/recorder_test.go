package history

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
)

// A history of real leases, from two recorders, with a last line that is torn.
func TestRecordAndRead(t *testing.T) {
	locks, err := core.New(core.Local(), core.WithTTL(200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(t.Context())
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}

	before := Now()
	a := create(t, paths[0], "a")
	one := a.Ask(Request{Key: "k"})
	lease := acquire(t, locks)
	one.Got(lease)
	for first := lease.Deadline(); lease.Deadline().Equal(first) && lease.Remaining() > 0; time.Sleep(time.Millisecond) {
	}
	if !one.Still(lease) {
		t.Fatal("lease lost")
	}
	b := create(t, paths[1], "b")
	two := b.Ask(Request{Key: "k", Fair: true})
	sent := Now()
	_, err = locks.Acquire(t.Context(), "k")
	two.Heard(sent, false)
	two.Refused(err)
	one.Releasing()
	one.Released(lease.Release(t.Context()))
	if one.Still(lease) {
		t.Error("a released lease is live")
	}

	ctx, lease := t.Context(), acquire(t, locks, core.WithoutRenewal())
	three := b.Ask(Request{Key: "k"})
	three.Got(lease)
	<-lease.Context().Done()
	three.Lost()
	three.Released(lease.Release(ctx))
	for _, r := range []*Recorder{a, b} {
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	tear(t, paths[1])

	holds, err := Read(paths...)
	if err != nil {
		t.Fatal(err)
	}
	if len(holds) != 3 {
		t.Fatalf("%d holds, want 3: %v", len(holds), holds)
	}
	h := holds[0]
	if h.Process != "a" || h.Fence == 0 || h.Asked <= before || h.Start <= h.Asked || h.LeftAt <= h.Start || h.End() != h.LeftAt {
		t.Errorf("held and released: %v", h)
	}
	if span := time.Duration(h.Until - h.Start); span < 200*time.Millisecond || span > 320*time.Millisecond {
		t.Errorf("renewed once, it ran %v past its start: %v", span, h)
	}
	if h := holds[1]; h.Granted() || h.Process != "b" || !h.Fair || h.Refused == "" || len(h.Heard) != 1 || len(h.Grants) != 0 ||
		h.Heard[0].Sent != sent || h.Heard[0].Answered < sent || h.GaveUp < h.Heard[0].Answered {
		t.Errorf("refused: %v", h)
	}
	if h := holds[2]; h.LostAt == 0 || h.End() > h.LostAt || h.End() > h.Until || h.Left == "" {
		t.Errorf("lost: %v", h)
	}
	expect(t, append(Overlaps(holds), Fences(holds, true)...), "")
}

func create(t *testing.T, path, process string) *Recorder {
	r, err := Create(path, process)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func acquire(t *testing.T, l core.Locker, opts ...core.Option) *core.Lease {
	lease, err := l.Acquire(context.Background(), "k", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// tear leaves half a line at the end.
func tear(t *testing.T, path string) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(`{"t":12,"h":9,"e":"as`); err != nil {
		t.Fatal(err)
	}
}

func TestRegisterServed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	r := NewRegister()
	var served sync.WaitGroup
	served.Go(func() { r.Serve(l) })
	remote, err := DialRegister(path)
	if err != nil {
		t.Fatal(err)
	}
	for fence := int64(1); fence <= 3; fence++ {
		fenced, plain, ok, err := remote.Claim("k", fence)
		if err != nil || !ok || fenced != fence-1 || plain != fence-1 {
			t.Fatalf("claim: %d, %d, %v, %v", fenced, plain, ok, err)
		}
		if ok, err := remote.Write("k", fence, fenced+1, plain+1); err != nil || !ok {
			t.Fatalf("write: %v, %v", ok, err)
		}
	}
	if _, _, ok, err := remote.Claim("k", 1); err != nil || ok {
		t.Fatalf("claim by a smaller fence: %v, %v", ok, err)
	}
	remote.Close()
	l.Close()
	served.Wait()
	if n := len(r.Fenced()); n != 3 {
		t.Errorf("%d updates, want 3", n)
	}
}
