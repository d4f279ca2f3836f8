package admit

import "strings"

// Key is the key of a value that a caller chose: "name:value". Braces in the value are escaped, since in Redis Cluster
// they would choose the slot, and a caller who chooses slots can aim all load at one node. `{` becomes `\(`, `}`
// becomes `\)` and a backslash is doubled, so that two values are always two keys.
//
// The name is the programmer's and stands as it is: "shop:order" and "{orders}" are fine.
func Key(name, value string) string {
	return name + ":" + Escape(value)
}

// Escape returns value without braces, unambiguously. A value without braces and backslashes is returned as it is.
func Escape(value string) string {
	if !strings.ContainsAny(value, `\{}`) {
		return value
	}
	return braces.Replace(value)
}

var braces = strings.NewReplacer(`\`, `\\`, `{`, `\(`, `}`, `\)`)
