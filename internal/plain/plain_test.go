package plain

import (
	"strings"
	"testing"
	"time"
)

func TestText(t *testing.T) {
	for _, c := range []struct {
		in    string
		limit int
		want  string
	}{
		{"order:42", 0, "order:42"},
		{`say "hi" \ there`, 0, `say "hi" \\ there`},
		{`\"`, 0, `\\"`},
		{"a\nb\x00c\x1b[31m", 0, `a\nb\x00c\x1b[31m`},
		{"\xff\xfe", 0, `\xff\xfe`},
		{"a\u202eb\u200b", 0, `a\u202eb\u200b`},
		{"ключ:שלום", 0, "ключ:שלום"},
		{"abcdef", 3, "abc…"},
		{"abc", 3, "abc"},
		{"aéé", 4, "aé…"},
		{strings.Repeat("\x80", 9), 8, `\x80\x80\x80\x80…`},
	} {
		if got := Text(c.in, c.limit); got != c.want {
			t.Errorf("Text(%q, %d) = %s, want %s", c.in, c.limit, got, c.want)
		}
	}
}

func FuzzReadIsTheOppositeOfText(f *testing.F) {
	for _, s := range []string{"", "order:42", "\\", `"`, `\"`, `a\n"`, "a\n\x00\xff\u202eש"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, err := Read(Text(s, 0)); err != nil || got != s {
			t.Errorf("%q: got %q, %v by way of %s", s, got, err, Text(s, 0))
		}
	})
}

func TestReadRefuses(t *testing.T) {
	for _, text := range []string{`\`, `a\q`, "a\nb"} {
		if got, err := Read(text); err == nil {
			t.Errorf("%q is read as %q", text, got)
		}
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ms", 999*time.Millisecond + 999*time.Microsecond: "999 ms", time.Second: "1.0 s",
		59*time.Second + 990*time.Millisecond: "59.9 s", 245 * time.Second: "4 min 5 s", 200 * time.Minute: "3 h 20 min",
		52 * time.Hour: "2 d 4 h", -time.Second: "-1.0 s",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%d) = %s, want %s", d, got, want)
		}
	}
}
