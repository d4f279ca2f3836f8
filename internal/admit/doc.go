// Package admit is what all adapters share: a key becomes a lease or a verdict, and the lease is left again with or
// without a cooldown. It knows no protocol. An adapter turns its request into a key and a verdict into a reply:
//
//	lease, verdict := guard.Enter(ctx, key)
//	if verdict != nil {
//		return reply(verdict)
//	}
//	success := false // a panic leaves it so
//	defer func() { guard.Leave(ctx, lease, success) }()
//	err := handle(admit.Context(ctx, lease))
//	success = err == nil
//	if v := guard.Lost(ctx, lease, err); v != nil {
//		return reply(v)
//	}
package admit
