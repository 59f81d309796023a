// Package lease keeps a replica that cannot prove that it is the leader from writing.
//
// A leader by client-go's leader election holds a Lease, and whoever competes with it waits for
// LeaseDuration after the last renewal that it has seen. But nothing stops a leader that was frozen,
// or cut off, from going on where it was when the others have long elected another one. A [Guard] does:
//
//   - It wraps the resource lock and notes when each successful renewal was sent. Until nine tenths of
//     LeaseDuration have passed since then, nobody else can have become leader, whatever happened to
//     the answer, to the others, or to this process.
//   - It wraps the way to the API server and to the cloud. A write passes only within that time, which
//     is looked at again where the bytes leave the process. A write that is under way when the time is
//     over is broken off, and what of it the kernel still has to send is thrown away.
//   - A Lease is given up only if the last read shows that it is one's own, and when no write is under
//     way any more.
//
// What is refused fails with an [Error]. A pass of a reconciler within [Guard.Pass] that was refused a
// write ends there without a trace: nobody is told that an object of theirs had trouble.
//
// What still escapes is what has left this machine: a request that waits in a proxy or in the API
// server itself. So writes have to be such that they do no harm when they are late: bound to a UID or a
// version, under names that are always the same.
package lease
