package core

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
)

// newToken returns 128 random bits in hexadecimal.
func newToken() string {
	var text [32]byte
	r := randomness.Get().(*randomBytes)
	hex.Encode(text[:], r.next())
	randomness.Put(r)
	return string(text[:])
}

// randomness is read ahead, for the system's is had at a price per read.
var randomness = sync.Pool{New: func() any { return new(randomBytes) }}

// randomBytes hands out each of its bytes once.
type randomBytes struct {
	ahead [32 * tokenBytes]byte
	left  int
}

const tokenBytes = 16

// next returns the bytes of one token, valid until the next call.
func (r *randomBytes) next() []byte {
	if r.left == 0 {
		rand.Read(r.ahead[:]) // never fails; see its documentation
		r.left = len(r.ahead)
	}
	r.left -= tokenBytes
	return r.ahead[r.left : r.left+tokenBytes]
}
