package web

import "github.com/latchkit/latchkit/core"

// Join makes one key of several, unambiguously: see core.JoinKey. The first error wins.
func Join[C comparable](keys []Value[C]) Value[C] {
	return func(request C) (string, error) {
		parts := make([]string, len(keys))
		for i, key := range keys {
			part, err := key(request)
			if err != nil {
				return "", err
			}
			parts[i] = part
		}
		return core.JoinKey(parts...), nil
	}
}
