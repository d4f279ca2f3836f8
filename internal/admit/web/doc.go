// Package web is what the HTTP adapters share below their public faces: the values that a request carries, bodies that
// are read for a key and given back whole, and the outcome of a handler. What is public of it stands in httplock,
// ginlock and echolock.
package web
