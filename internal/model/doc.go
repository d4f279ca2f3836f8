// Package model explores every course that a small RedLock can take: two clients, one key, and nodes that grant, let
// expire, forget, are judged, wait in quarantine and are filled in again, with answers that are lost and steps in any
// order. It is what core/redlock*.go does, with the sockets left out. Holds are exclusive here; readers are left out, whom
// the nodes bear side by side, and fill in, miss and forget by the same rules.
//
// What must hold in every state:
//
//   - No two clients hold at once.
//   - Fences grow from grant to grant.
//   - A hold that was taken away by force on a majority is never prolonged again.
//   - A lock that was taken away by force at a node where its holder knew it to be does not come back there, unless the
//     node has lost its memory since, or has not answered until the lock would have run out.
//
// A Rules value can leave out one of the rules at a time, and the explorer then finds the course that breaks a promise:
// so the model shows that each rule is needed, and that it would see a violation if there were one.
//
// Time is counted in ticks. A lock lives Life ticks at a node and a hold as long by its client's clock, which began to run
// before the request was sent; so within a tick clients' time passes first. A round lasts a tick at most: what has not
// been answered then is void, as it is by its not-after. Clocks run alike. Nodes are alike too, so states that differ by
// their order are one.
package model
