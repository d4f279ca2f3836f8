// Package plain writes for people what locks tell: on a page and in a terminal, where a key that somebody else has chosen
// must not take over.
package plain

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Text returns s as one line that shows every byte: what is not printable, such as a newline, an escape sequence, a
// change of direction or what is not UTF-8, is written as in a Go string, and so is a backslash. Past limit bytes s is
// cut; 0 means no limit.
func Text(s string, limit int) string {
	cut := limit > 0 && len(s) > limit
	if cut {
		for n := 0; n < utf8.UTFMax && limit > 0 && !utf8.RuneStart(s[limit]); n++ {
			limit-- // no half runes
		}
		s = s[:limit]
	}
	quoted := strconv.Quote(s)
	text := strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	if cut {
		text += "…"
	}
	return text
}

// Duration returns d with as much detail as a person wants: "45 ms", "12.3 s", "4 min 5 s", "3 h 20 min", "2 d 4 h".
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "-" + Duration(-d)
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', 1, 64) + " s"
	case d < time.Hour:
		return two(d, time.Minute, " min ", time.Second, " s")
	case d < day:
		return two(d, time.Hour, " h ", time.Minute, " min")
	default:
		return two(d, day, " d ", time.Hour, " h")
	}
}

func two(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	return strconv.FormatInt(int64(d/large), 10) + largeName + strconv.FormatInt(int64(d%large/small), 10) + smallName
}

// Read is the opposite of Text: people type a key as they see it.
func Read(text string) (string, error) {
	var quoted strings.Builder
	quoted.WriteByte('"')
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '"':
			quoted.WriteByte('\\')
		case text[i] == '\\' && i+1 < len(text):
			quoted.WriteByte('\\')
			i++
		}
		quoted.WriteByte(text[i])
	}
	quoted.WriteByte('"')
	s, err := strconv.Unquote(quoted.String())
	if err != nil {
		return "", fmt.Errorf("%s: a backslash begins an escape, as in a Go string: write it twice", text)
	}
	return s, nil
}
