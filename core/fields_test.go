package core

import (
	"errors"
	"testing"
)

// FuzzAnswers reads whatever a script may be said to have answered: what is no grant in the script's own words grants
// nothing, and leaves the outcome open.
func FuzzAnswers(f *testing.F) {
	for _, answer := range []string{
		"", ";", "G,7,1,0;", "G,7,1,0", "G,0,1,0;", "G,-7,1,0;", "G,7,0,0;", "G,x,1,0;", "G,9223372036854775807,64,0;", "G;", "GG,7,1,0;",
		"R,500,3,a;b;", "R,500,4000000000,x;", "R,500,-1,;", "R,99999999999999999999,0,;", "S,100;", "S,-2;", "C,9223372036854775807;",
		"A;", "F;", "X;", "O,7,1,0;G,8,1,0;", "OK", "A,", "Z,3,2000000000,s1,5,1,x,", "Z,0,1,,5,0,,", "S,0,100,1,5,hello,", "N,0,", "N,1",
		"-,1700000000000000,0,;G,7,0;", "ab,1,0,r:ab:cd:60000:0:1;R,5,x,0,;", "ab,1,0,;Q,5;", "ab,1,0,;?;",
		"run,r:life:run:60000:0:1,1700000000000000,5,", "run,r:life:run:-:0:1,5,5,", "run,r:life:run:1:0:1,5",
	} {
		f.Add(answer)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		ops := []*Op{{Action: Try, Hold: Hold{Key: "a"}}, {Action: Try, Hold: Hold{Key: "b"}}}
		lockDialect{}.read(ops, answer)
		for _, op := range ops {
			switch {
			case op.Verdict == Granted && (op.Fence < 1 || op.Fenced < 1 || op.Fence+int64(op.Fenced) < 0):
				t.Errorf("%q grants the fences %d+%d", answer, op.Fence, op.Fenced)
			case op.Verdict == None && op.Err == nil:
				t.Errorf("%q is neither a verdict nor an error", answer)
			case op.Err != nil && op.Verdict != None:
				t.Errorf("%q is both: %v, %v", answer, op.Verdict, op.Err)
			case op.Err != nil && op.Unsent && !errors.Is(op.Err, ErrConflict):
				t.Errorf("%q is taken for one that did nothing: %v", answer, op.Err)
			case op.Left < 0:
				t.Errorf("%q is a TTL of %v", answer, op.Left)
			}
		}
		if info, err := readInfo("a", answer); err != nil && len(info.Holders) > 0 {
			t.Errorf("%q tells of holders, and is not understood: %v", answer, err)
		}
		node := fields{text: answer}
		for range 3 {
			if a := node.answer(); a.err == nil && a.mark == 'G' && a.counter < 1 || a.err == nil && a.mark == 0 {
				t.Errorf("%q is the answer %+v of a node", answer, a)
			}
		}
		if s := readSight(answer); s.err != nil && s.state != 0 {
			t.Errorf("%q is a marker in the state %c, and is not understood", answer, s.state)
		}
	})
}

// TestAnswersAreReadStrictly holds what each form means, and that one byte less means nothing.
func TestAnswersAreReadStrictly(t *testing.T) {
	for answer, want := range map[string]Verdict{
		"G,7,1,0;": Granted, "O,7,1,0;": OK, "R,500,3,a;b;": Refused, "S,500;": Refused, "C,500;": Refused, "A;": Absent, "F;": Foreign,
	} {
		op := &Op{Action: Try, Hold: Hold{Key: "a"}}
		lockDialect{}.read([]*Op{op}, answer)
		if op.Verdict != want || op.Err != nil {
			t.Errorf("%q: %v, %v; want %v", answer, op.Verdict, op.Err, want)
		}
		for cut := range len(answer) {
			op := &Op{Action: Try, Hold: Hold{Key: "a"}}
			lockDialect{}.read([]*Op{op}, answer[:cut])
			if op.Verdict != None || !errors.Is(op.Err, ErrUnavailable) || op.Unsent {
				t.Errorf("%q: %v, %v; want an outcome that is not known", answer[:cut], op.Verdict, op.Err)
			}
		}
	}
}
