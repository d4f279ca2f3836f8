package core

import (
	"strings"
	"testing"
)

// Slots as redis-cli's CLUSTER KEYSLOT gives them.
func TestSlots(t *testing.T) {
	for name, want := range map[string]int{"": 0, "123456789": 12739, "foo": 12182, "{foo}bar": 12182, "{}foo": 9500,
		"foo{}{bar}": 8363, "foo{{bar}}zap": 4015, "foo{bar}{zap}": 5061} {
		if got := slotOf(name); got != want {
			t.Errorf("slot of %q is %d, want %d", name, got, want)
		}
	}
}

func TestSlotTagsCoverEverySlot(t *testing.T) {
	for slot := range slots {
		if tag := slotTag(slot); slotOf(tag) != slot || slotOf("x{"+tag+"}y") != slot || strings.ContainsAny(tag, "{}") {
			t.Fatalf("tag %q of slot %d lies in %d", tag, slot, slotOf(tag))
		}
	}
}

func TestNames(t *testing.T) {
	for key, want := range map[string]struct{ lock, companion string }{
		"order:42":      {"order:42", "latchkit~wait:{order:42}"},
		"{user:1}:cart": {"{user:1}:cart", "latchkit~wait:{user:1}{user:1}:cart"},
		"a{b":           {"a{b", "latchkit~wait:{a{b}"},
	} {
		if lock := lockName(key); lock != want.lock || companionName("wait", lock) != want.companion {
			t.Errorf("%q: lock %q, companion %q", key, lock, companionName("wait", lock))
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, key := range []string{"k", "}x", "{}", "{a}", "{}x}", "latchkit~wait:{k}", "\x00\r\n\xff", "a}{b}", "{{a}}"} {
		f.Add(key, "other")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" {
			return // refused before it gets here
		}
		lock := lockName(a)
		companion := companionName("wait", lock)
		switch {
		case a != b && lock == lockName(b):
			t.Errorf("%q and %q are one lock", a, b)
		case slotOf(lock) != slotOf(companion):
			t.Errorf("%q: the companion %q lies in another slot", a, companion)
		case lockName(b) == companion:
			t.Errorf("the lock of %q is the companion of %q", b, a)
		case a != b && companion == companionName("wait", lockName(b)):
			t.Errorf("%q and %q share the companion %q", a, b, companion)
		case len(a) <= longestName && !strings.Contains(a, reserved) && lock != a:
			t.Errorf("%q is stored as %q, not as a person types it", a, lock)
		}
		if tag, own := hashTag(a); own && len(tag) <= longestName/4 && slotOf(lock) != slotOf(a) {
			t.Errorf("%q lost its slot", a)
		}
	})
}
