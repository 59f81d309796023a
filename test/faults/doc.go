// Package faults shows that the controllers converge: from any state, through any crash, fault or
// stale cache. It is a harness around the manager as a value, and the campaigns that use it.
//
//   - A [Bench] is an API server with everything around the managers that a cluster has and that
//     has to be there for them: Deployments are rolled out, autoscalers scale, endpoints appear,
//     garbage is collected. All of it is small, and deterministic where it can be.
//   - A [World] is a namespace of the bench, with a cloud of its own, the history of every object
//     in it and the record of every call that a manager made.
//   - A [Manager] is a whole manager, as cmd/manager builds it, whose every request goes through a
//     [Plan], which may let it pass, fail it, or crash the manager at it. Its watches can be held
//     back, and its lists served from the past.
//   - A [Scenario] is what a user does. [Bench.Undisturbed] runs it undisturbed; [Bench.Run] holds
//     any other run against that: objects, field managers, conditions, how often each object was
//     created and deleted, the cloud, silence afterwards, and what must hold at every event.
//   - A [Simulation] is what users, others and faults do by a seed, to objects of all kinds at once.
//     [Bench.Simulate] holds its end against what the last specs lead to undisturbed.
//
// A run by hand, for whoever does something that no scenario does:
//
//	w, err := bench.NewWorld(ctx, faults.AppService, faults.SecureStorage)
//	m, err := w.Start()
//	err = w.Create(ctx, faults.NewAppService("web", faults.AllOptions))
//	w.SetPlan(faults.PlanFunc(func(c faults.Call) faults.Fault { ... })) // or m.Crash(), m.Hold("services")
//	m, err = w.Start()
//	w.Await(faults.Patience, func() bool { return w.ReadyWith(faults.AppService, "web", 1) })
//	w.Settle(m)
//	differences := w.Snapshot().Diff(another)
//	err = w.Quiet()
//	violations := w.Violations()
//	err = w.Close()
//
// Whatever fails is reported with one line that replays it. docs/convergence.md says what is proved
// by this and what is not.
package faults
