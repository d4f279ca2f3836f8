package web

import "github.com/latchkit/latchkit/core"

// Join makes one key of several, unambiguously: see core.JoinKey. The first error wins, and so does the first empty key:
// it would not show in the whole.
func Join[C comparable, F ~func(C) (string, error)](keys []F) F {
	RequireKeys("Join", keys)
	return func(request C) (string, error) {
		parts := make([]string, len(keys))
		for i, key := range keys {
			part, err := key(request)
			if err != nil || part == "" {
				return "", err
			}
			parts[i] = part
		}
		return core.JoinKey(parts...), nil
	}
}
