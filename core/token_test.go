package core

import (
	"encoding/hex"
	"sync"
	"testing"
)

// TestTokensAreNewAndWhole: each has bytes of its own, also where goroutines share what was read ahead.
func TestTokensAreNewAndWhole(t *testing.T) {
	const goroutines, each = 4, 1000
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range each {
				token := newToken()
				raw, err := hex.DecodeString(token)
				if err != nil || len(raw) != tokenBytes {
					t.Errorf("token %q: %d bytes, %v", token, len(raw), err)
				}
				mu.Lock()
				for _, half := range []string{token[:len(token)/2], token[len(token)/2:]} { // two that overlap share one
					if seen[half] {
						t.Errorf("%q was given twice", half)
					}
					seen[half] = true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}
