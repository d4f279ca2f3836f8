package web

import (
	"bytes"
	"strconv"
	"strings"
)

// plainDigits is up to how many digits an integer is written out. It is more than any integer type has.
const plainDigits = 40

// canonicalNumber gives equal numbers equal texts and others others, exactly: integers as people write them, all else
// as digits and an exponent ("15e-1"). The literal is a JSON number.
func canonicalNumber(literal []byte) (string, error) {
	if isPlain(literal) {
		return string(literal), nil
	}
	digits, sign := literal, ""
	if digits[0] == '-' {
		digits, sign = digits[1:], "-"
	}
	exponent := 0
	if i := bytes.IndexAny(digits, "eE"); i >= 0 {
		e, err := strconv.ParseInt(string(digits[i+1:]), 10, 32)
		if err != nil {
			return "", errMalformed // out of any range
		}
		digits, exponent = digits[:i], int(e)
	}
	if i := bytes.IndexByte(digits, '.'); i >= 0 {
		exponent -= len(digits) - i - 1
		digits = append(append(make([]byte, 0, len(digits)), digits[:i]...), digits[i+1:]...)
	}
	digits = bytes.TrimLeft(digits, "0")
	if len(digits) == 0 {
		return "0", nil
	}
	significant := bytes.TrimRight(digits, "0")
	exponent += len(digits) - len(significant)
	if exponent >= 0 && len(significant)+exponent <= plainDigits {
		return sign + string(significant) + strings.Repeat("0", exponent), nil
	}
	return sign + string(significant) + "e" + strconv.Itoa(exponent), nil
}

// isPlain tells whether the literal is an integer as canonicalNumber would write it: the usual case.
func isPlain(literal []byte) bool {
	if len(literal) > plainDigits || string(literal) == "-0" {
		return false
	}
	return !bytes.ContainsAny(literal, ".eE")
}
