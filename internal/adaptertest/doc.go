// Package adaptertest is the table of request cases that every adapter must pass, over real loopback connections.
//
// Run has the cases that need no more of a protocol than a call and an answer; an adapter joins by an Adapter. RunHTTP
// has those of HTTP on top, over HTTP/1.1 and HTTP/2: router peculiarities, bodies, encodings; an adapter joins by an
// HTTP, which says how its framework mounts a route. The numbers in the names of the cases tell them apart in
// what fails.
package adaptertest
