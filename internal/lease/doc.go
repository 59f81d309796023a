// Package lease prevents writes by a replica that cannot prove that it is the leader.
//
// With client-go's leader election the leader holds a Lease, and a candidate waits for LeaseDuration after
// the last renewal that it has observed. But a leader that was frozen or disconnected may continue to write
// after another replica was elected. A [Guard] prevents that:
//
//   - It wraps the resource lock and records when each successful renewal was sent. Within nine tenths of
//     LeaseDuration after that no other replica can become leader. During this time the Lease is proven.
//   - It wraps the connections to the API server and to the cloud. Writes are sent only while the Lease is
//     proven, which is checked again where the bytes leave the process. When the proof expires, pending
//     writes are aborted and their unsent bytes discarded.
//   - The Lease is released only if the last read shows that this replica holds it, and no write is pending.
//
// A refused write fails with an [Error]. A reconciler wrapped by [Guard.Reconciler] stops at a refused write
// and reports no error on the object, because the cause is the replica.
//
// Requests that have left this machine, for example queued in a proxy or in the API server, cannot be
// stopped. So writes must be harmless when they arrive late: bound to a UID or a version, and with
// deterministic names.
package lease
