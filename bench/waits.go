package main

import (
	"math/bits"
	"time"
)

// waits counts durations in classes of at most 1/16 of their length: recording one costs no more than the clock.
type waits struct {
	Counts [64 * 16]uint32 `json:"-"`
	n      uint64
	Max    time.Duration
}

func (w *waits) add(d time.Duration) {
	w.Counts[class(d)]++
	w.n++
	w.Max = max(w.Max, d)
}

func class(d time.Duration) int {
	n := uint64(max(d, 0)) | 15
	shift := bits.Len64(n) - 5
	if shift < 0 {
		return int(n)
	}
	return shift*16 + int(n>>shift)
}

// middle is the duration in the middle of class i.
func middle(i int) time.Duration {
	if i < 32 {
		return time.Duration(i)
	}
	shift := i/16 - 1
	return time.Duration(uint64(i%16+16)<<shift + 1<<shift/2)
}

func (w *waits) merge(o *waits) {
	for i, n := range o.Counts {
		w.Counts[i] += n
	}
	w.n += o.n
	w.Max = max(w.Max, o.Max)
}

// at is the quantile q.
func (w *waits) at(q float64) time.Duration {
	rest := uint64(q * float64(w.n))
	for i, n := range w.Counts {
		if uint64(n) > rest {
			return min(middle(i), w.Max)
		}
		rest -= uint64(n)
	}
	return w.Max
}
