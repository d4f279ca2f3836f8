// Package core is latchkit's lock engine.
package core
