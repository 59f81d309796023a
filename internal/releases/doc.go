// Package releases divides the namespaces of a cluster among several releases of Fixpoint, so that at most one of
// them writes in a namespace at any time.
//
// A release is known by the namespace of its Lease for leader election. All releases claim their namespaces in one
// Lease, [LeaseName] in [LeaseNamespace], in an annotation each. Every write of that Lease has the resourceVersion of
// the Lease that the claims were decided on, so claims are exclusive: of two releases that claim a namespace at the
// same time, the API server refuses one. A release that reconciles all namespaces claims everything.
//
// The leader of a release writes its claims when it is elected, when they change, and every fifth of
// [DefaultDuration]. It reconciles only what it has claimed:
//
//   - It gives a namespace up by refusing further writes in it, waiting for pending ones, and then writing the Lease.
//   - For four fifths of the duration after a successful write, no other release can claim its namespaces. After
//     that it writes nothing until it has renewed its claims.
//   - Claims that were not renewed for their duration, as observed by another leader, are removed by it, such as
//     those of a release that was uninstalled. The observation needs no synchronized clocks, and the resourceVersion
//     shows that it is current.
//
// What to claim is decided by pure functions; [Controller] reads and writes.
package releases
