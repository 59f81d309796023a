// Package phases reconciles an object through a declared list of phases.
//
// A controller says what its object is made of, in order:
//
//	Phases: []phases.Phase[*scope]{
//		configPhase(),     // the ConfigMap
//		servicePhase(),    // the Service
//		deploymentPhase(), // the Deployment; later phases wait until it is rolled out
//		ingressPhase(),    // optional: pruned when spec.ingress is not set
//	},
//
// and an [Engine] does the rest on every pass: it puts the finalizer on, brings each phase about,
// stops at the first that is not done, writes a status that is true, emits Events on transitions,
// says when to come again, and on deletion undoes the same list in reverse. A pass is repeated
// until nothing changes; there it writes nothing more.
//
// # Two sorts of phase
//
// A [Child] is one Kubernetes object. It is declared as two functions of values: Desired, the apply
// configuration that the object should have (nil if there should be none), and Ready, a verdict on
// the live object. Neither reads nor writes, so both are tested with tables.
//
//	phases.Child[*scope, *appsv1ac.DeploymentApplyConfiguration, *appsv1.Deployment]{
//		Name:     "Deployment",
//		Desired:  desiredDeployment, // func(*scope) (*appsv1ac.DeploymentApplyConfiguration, error)
//		Ready:    isRolledOut,       // func(*appsv1.Deployment) phases.Verdict
//		Observed: func(s *scope, live *appsv1.Deployment) { s.deployment = live },
//	}
//
// The child has the owner's name unless ChildName says otherwise, and lives in its namespace. Build
// the configuration anew each time: the engine adds the owner reference to it. Of the kind's
// objects, those that the owner controls and that no phase names are deleted, so that a child which
// an earlier version of the operator named otherwise does not stay behind. [PruneOrder] says when a
// child goes that is no longer wanted; Requires gates it by something that it does not control.
//
// A [Step] is what is not a Kubernetes object: a cloud's resource, a protocol's handshake. Observe
// reads, Ensure writes what Observe found [Missing], and Undo takes it back.
//
//	phases.Step[*scope]{
//		Name:    "KeyAccess",
//		Observe: observeGrant, // Done, Missing, Wait or Stalled
//		Ensure:  ensureGrant,
//		Undo:    undoGrant,    // Done when the grant is observed to be gone
//	}
//
// Each function must be safe to run again after a crash at any instant within it. So find things
// by a name that follows from the object, and not by one that was stored after it was made.
//
// What phases hand to their successors goes through the scope, a struct of the controller's own
// that lives for one pass. Observed is also called for the children of phases that a pass did not
// get to, so that a status made of the scope stays true of them.
//
// # Verdicts
//
// A phase says one of these about itself, and its condition <name>Ready repeats it:
//
//   - [Done], or [NotConfigured] for an option that is off: the next phase begins. With
//     [Verdict.LookAgainAfter] the object is looked at again though nothing watched changes. With
//     [Verdict.AndReconciling] or [Verdict.AndStalled] the phase says that it is not at its end.
//   - [Wait]: something in the world has to happen first. The object is looked at again when
//     something watched changes, or after the time given, or after [SafetyNet] if none is.
//     The smallest wait of a pass wins. With [Verdict.AsTrouble] its Event is a warning.
//   - [Stalled]: only a change of the spec or of the world helps. The object is not looked at
//     again until something watched changes.
//   - an error: tried again with backoff. One with a ConditionReason and Permanent method, as
//     [ssa.Error] is, gives the condition its reason, and stalls if it is permanent.
//
// Reasons and messages must be the same from try to try: no generated names, times or counters of
// tries. A message that changes is a write of the status, and a write is a new pass. From errors
// that have no reason of their own the engine takes out what it knows to vary.
//
// # Laws
//
//  1. Computed, never remembered: where an object stands follows from what is observed, on every
//     pass. The conditions are read to tell transitions from repetitions, and for nothing else.
//  2. A phase may be stopped at any instant and run again.
//  3. A phase gates its successors by its verdict.
//  4. Teardown is the list reversed, each phase waiting until the one after it is observed to be
//     gone. The finalizer is there before the first side effect and goes after the last. The
//     children of a deletion that orphans are left to the garbage collector first. Nothing that is
//     wrong with a spec, and no kind that the cluster has ceased to serve, keeps an object from
//     being removed; a teardown that stalls is looked at again at the pace of the safety net.
//  5. Status is the truth, even when a phase fails, and is written once, if it differs.
//  6. Every transition is seen: one Event for each condition whose status or reason changed, and
//     metrics by controller, phase and outcome. That an option is off which has not been on is no
//     transition: from NotConfigured to Unknown and back, nothing has happened.
//  7. A plan has no side effects.
//  8. A wrong list fails in [New].
//
// # Status
//
// The kind's own function builds the status from the scope and the [Summary], which holds every
// condition, complete: <name>Ready for each phase (True; False with the reason for which it waits
// or has failed; Unknown while an earlier phase blocks it), Ready over all, and, only while they
// are True, Reconciling, Stalled, Drifted and Suspended. Tools that read kstatus (Flux, Argo CD,
// kubectl wait) are right about it. Put all of Summary.Conditions into the status, by
// [ConditionConfigurations]: one that is left out is removed by the apply.
//
// # Drift
//
// What others changed of a child is put back or only reported, as Policies says; a child that
// somebody deleted is made anew in any case. Either way Summary.Drifts holds it for this pass. What was put back has an Event; what was left stands in
// the condition Drifted until it is gone.
//
// # Plans
//
// [Engine.Plan] runs the same code with an applier that writes nothing, and says for each phase
// what it would do. A plan goes as far as one pass would. Of a step it says that it would be
// ensured or undone, and stops there, since what follows depends on what the world answers.
//
// # Wiring
//
// The applier is that of the ssa package; the manager's client reads from the cache and its API
// reader past it.
//
//	applier, err := ssa.New(ssa.Options{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), FieldManager: "example-web"})
//	...
//	engine, err := phases.New(definition, phases.Dependencies{
//		Reader:   mgr.GetClient(),
//		Uncached: mgr.GetAPIReader(),
//		Applier:  applier,
//		Planner:  applier.DryRun(),
//		Scheme:   mgr.GetScheme(),
//		Recorder: mgr.GetEventRecorder("example-web"),
//		Metrics:  metrics,
//	})
//	...
//	controller := builder.ControllerManagedBy(mgr).
//		For(&Web{}, builder.WithPredicates(phases.AtOnce())).
//		Watches(&Web{}, phases.InAWhile())
//	for _, child := range engine.Watches(mgr.GetRESTMapper()) {
//		controller.Watches(child.Object, child.Handler)
//	}
//	err = controller.Complete(engine)
//
// The cache should be one that reads its own writes, and every child's kind needs the index that
// [ssa.IndexController] adds to it. [Engine.Watches] covers the children; watch what else the
// phases wait for, such as a Secret that a child refers to, or look again after a time.
//
// # Testing
//
// Desired, Ready and the functions of a Step are called directly. For the order of things,
// [Dependencies] are interfaces: a reader and an [Applier] in memory make a world in which a test
// can stop the engine at any call and let a fresh one go on.
package phases
