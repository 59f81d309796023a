// Package phases reconciles an object through a declared list of phases.
//
// A controller says what its object consists of, in order:
//
//	Phases: []phases.Phase[*scope]{
//		configPhase,     // the ConfigMap
//		servicePhase,    // the Service
//		deploymentPhase, // the Deployment; later phases wait until it is rolled out
//		ingressPhase,    // optional: pruned when spec.ingress is not set
//	},
//
// and an [Engine] does the rest on every reconcile: it adds the finalizer, brings each phase about,
// stops at the first that is not done, writes a status that is true, emits Events on transitions, says
// when to reconcile again, and on deletion undoes the same list in reverse. A reconcile is repeated
// until nothing changes; there it writes nothing more.
//
// # Phases
//
//   - A [Child] is one Kubernetes object. Desired, a function of values, is the apply configuration that
//     it should have, or nil if there should be none; Health is a verdict on the live object.
//   - [Children] are a set of objects of one kind whose members the spec decides.
//   - A [Step] is what is not a Kubernetes object: a cloud's resource, a protocol's handshake. Observe
//     reads, Ensure writes what Observe found [Missing], and Undo takes it back.
//   - Anything else that implements [Phase].
//
// The children of a namespaced object are in its namespace. Those of a cluster-scoped object are
// cluster-scoped, or in the ChildNamespace of their phase.
//
// What phases hand to their successors goes through the scope, a struct of the controller's own that
// lives for one reconcile. Observed is also called for the children of phases that a reconcile does not
// get to, so that a status computed from the scope is true of them.
//
// # Phases propose, one executor acts
//
// A phase answers one question in each direction, and only reads: what is next? The answer ([Next]) is a
// [Verdict], or one action as a value: [Apply] this decision, [Delete] this object, [Do] this step. The
// executor makes sure that the owner is still the version that was read, performs the action, logs and
// records it, and asks again. [Engine.Plan] is the same walk with an executor that sends dry runs; it
// names what it would do, also in a cloud, and goes as far as one reconcile would: what follows a step
// depends on how it ends, unless the step says what to assume (Planned).
//
// # Verdicts
//
//   - [Done]: the next phase begins. [NotConfigured]: so it does, and the phase has no condition.
//   - [Wait]: something outside has to happen first. The object is reconciled again when something
//     watched changes, or after the time given, or after [SafetyNet]. The smallest wait wins.
//   - [Stalled]: only a change of the spec or of the environment helps. The object is not reconciled again
//     until something watched changes.
//   - An error is retried with backoff. One with a ConditionReason and a Permanent method, as [ssa.Error]
//     is, gives the condition its reason, and stalls if it is permanent; a [reconcile.TerminalError] stalls too.
//
// Messages must be the same from try to try: no generated names, times or counters. A message that
// changes is a write of the status. From errors that have no reason of their own, the engine removes
// what it knows to vary.
//
// # Laws
//
//  1. Computed, never remembered: which phase an object is in follows from what is observed, on every
//     reconcile. The engine reads the conditions back to tell transitions from repetitions, and a child
//     that was deleted from one that never existed, and for nothing else. A step that needs a fact which
//     cannot be observed again has to note it in the status before it acts, and to say so.
//  2. A phase may be stopped at any instant and run again. So find things by a name that follows from
//     the object, and not by one that was stored after it was created.
//  3. A phase gates its successors by its verdict.
//  4. Teardown is the list reversed, each phase waiting until the one after it is observed to be gone,
//     past the cache. The finalizer is added before the first side effect and removed after the last.
//     An invalid spec, and a kind that the cluster no longer serves, do not block it.
//  5. Status is the truth, even when a phase fails, and is written once, if it differs. [Summary] holds
//     every condition: Ready; <Phase>Ready for each phase that the object asks for, or of which something
//     is left; and, only while they are True, Reconciling, Stalled, Drifted and Suspended, as kstatus
//     reads them. Give the status of your kind the default {observedGeneration: -1}: until the
//     controller has written one, kstatus then says InProgress.
//  6. Transitions are seen, and no more than that: an Event when the object becomes ready or stops being
//     ready, or a phase fails, stalls or waits because of a problem, for another reason than before; when an
//     object that is ready stalls; when a phase is done through [DoneBecause], unless it is still reconciling
//     or stalled; for each drift that was reverted; and when Drifted or Suspended becomes True or is removed
//     (DriftedOver, SuspendedOver). And metrics by controller, phase and outcome.
//  7. A plan has no side effects.
//  8. A wrong list fails in [New].
//
// # Set-up
//
//	deps, err := phases.FromManager(mgr, ssa.Options{FieldManager: "website-operator"})
//	...
//	engine, err := phases.New(definition, deps)
//	...
//	err = engine.SetupWithManager(mgr, phases.SetupOptions{})
//
// [Engine.SetupWithManager] adds indexes, watches, predicates and backoff for the list. Name what else
// the phases wait for in [SetupOptions.Sources], such as a Secret that a child refers to, or reconcile
// again after a time. The phasestest package runs an engine against an API server in memory, stops it at
// any call, and lets a fresh one go on.
package phases
