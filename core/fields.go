package core

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// fields reads what a script has answered, one field after the other. An answer of another form is no grant, whatever
// part of it can be read: the client may have been given the words of another command, or another server speaks.
type fields struct {
	text string
	// bad: the answer is of another form. All that follows in it is bad as well.
	bad bool
}

// read reads the answer to op; the scripts say what it looks like.
func (f *fields) read(op *Op) {
	switch kind := f.next(); kind {
	case "G", "O":
		op.Verdict = OK
		if kind == "G" {
			op.Verdict = Granted
		}
		op.Fence, op.Fenced, op.Outside = f.number(), int(f.number()), f.number() > 0
		if kind == "G" && (op.Fence < 1 || op.Fenced < 1 || op.Fence > math.MaxInt64-int64(op.Fenced)) {
			f.spoil()
		}
	case "R":
		op.Verdict = Refused
		op.Left = f.milliseconds()
		op.HolderNote = f.take(f.number())
	case "S":
		op.Verdict, op.Silent = Refused, true
		op.Left = f.milliseconds()
	case "C":
		op.Verdict, op.Completed = Refused, true
		op.Left = f.milliseconds()
	case "A":
		op.Verdict = Absent
	case "F":
		op.Verdict = Foreign
	case "X":
		op.Err, op.Unsent = fmt.Errorf("%w: %q", ErrConflict, op.Key), true
	default:
		f.spoil()
	}
	if f.bad {
		op.Verdict, op.Err, op.Unsent = None, errAnswer, false
	}
}

// errAnswer leaves the outcome open, so that what may have been taken is given back.
var errAnswer = fmt.Errorf("%w: the script's answer is not understood", ErrUnavailable)

// next takes a field and what ends it.
func (f *fields) next() string {
	for i := 0; i < len(f.text); i++ {
		if c := f.text[i]; c == ',' || c == ';' {
			field := f.text[:i]
			f.text = f.text[i+1:]
			return field
		}
	}
	f.spoil()
	return ""
}

func (f *fields) number() int64 {
	n, err := strconv.ParseInt(f.next(), 10, 64)
	if err != nil {
		f.spoil()
		return 0
	}
	return n
}

// milliseconds reads a time to come: none when it has passed.
func (f *fields) milliseconds() time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(min(max(0, f.number()), most)) * time.Millisecond
}

// take takes n bytes, whatever they are, and what ends them.
func (f *fields) take(n int64) string {
	if n < 0 || n >= int64(len(f.text)) {
		f.spoil()
		return ""
	}
	text := f.text[:n]
	f.text = f.text[n+1:]
	return text
}

func (f *fields) spoil() { f.text, f.bad = "", true }
