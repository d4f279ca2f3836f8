// Package doccheck holds the documentation to its word: every Go block is compiled, whole programs are run and posted
// to, commands are run, and links lead somewhere.
package doccheck

// root is where the documentation stands, seen from this package's tests.
const root = "../.."
