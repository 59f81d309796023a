// Package faults tests that the controllers converge after any crash, failing call or stale cache. It
// holds a harness that runs complete managers in the test process, and the campaigns that use it.
//
//   - A [Cluster] is an API server with simulated Kubernetes controllers: Deployments roll out,
//     autoscalers scale, endpoints appear, garbage is collected.
//   - An [Environment] is a namespace of the cluster with a cloud of its own, the history of every
//     object in it, and a record of every call of its managers.
//   - A [Manager] is a complete manager, as cmd/manager builds it. A [Plan] decides for each of its
//     requests whether it succeeds, fails, or crashes the manager. Watches can be held back, and lists
//     can be served from an old revision.
//   - A [Scenario] is what a user does. [Cluster.Undisturbed] runs it without faults. [Cluster.Run]
//     runs it with faults and compares the result: objects, field managers, conditions, the number of
//     creates and deletes of each object, the cloud, quietness afterwards, and the invariants.
//   - A [Simulation] is a random sequence of user actions, external changes and faults, derived from a
//     seed. [Cluster.Simulate] compares its final state with that of the final specs without faults.
//
// A run without a scenario:
//
//	env, err := cluster.NewEnvironment(ctx, faults.AppService, faults.SecureStorage)
//	m, err := env.Start()
//	err = env.Create(ctx, faults.NewAppService("web", faults.AllOptions))
//	env.SetPlan(faults.PlanFunc(func(c faults.Call) faults.Fault { ... })) // or m.Crash(), m.HoldWatch("services")
//	m, err = env.Start()
//	env.WaitUntil(faults.Timeout, func() bool { return env.ReadyWith(faults.AppService, "web", 1) })
//	env.WaitIdle(m)
//	differences := env.Snapshot().Diff(another)
//	err = env.VerifyQuiet()
//	violations := env.Violations()
//	err = env.Close()
//
// Every failure is reported with the command that replays it. docs/convergence.md describes the
// campaigns and their limits.
package faults
