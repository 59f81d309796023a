// Package fakecloud is a cloud that runs on a laptop: an HTTP(S) server that speaks
// the part of Azure Resource Manager that is needed for storage accounts which are
// encrypted with a key of the customer, and that has the manners of the real one.
//
// The official SDK talks to it without knowing. There is no interface to mock, no
// second code path: whoever works against this server works against the cloud, as
// far as this server is honest. docs/fakecloud.md lists where it is not.
//
// # Manners
//
// Everything that makes a cloud hard to live with is a knob: provisioning that goes
// on after the answer, grants that take minutes to reach a vault, throttling with
// Retry-After, operations in progress, responses lost after the write took effect.
// [Knobs] has them all, [Instant] turns them off, [Realistic] sets them to what the
// real cloud does.
//
// Time is asked from a clock that can be injected, and chance is computed from the
// seed, the resource and how often that resource was decided about. So the same
// calls meet the same fate in every run, and objects that are reconciled in parallel
// do not disturb each other's fate.
//
// Nothing runs in the background. A state that changes by itself is stored with the
// instant at which it does, and whoever looks sees what the clock says.
//
// # The ledger
//
// Every call that could have changed something is in the ledger, with who, when, its
// request ids, how it was answered and what it did. A test that claims that nothing
// was created twice reads it there: [Server.Created].
//
// # Use
//
//	cloud := fakecloud.New(fakecloud.Options{Clock: clock, Knobs: fakecloud.Instant()})
//	demo := cloud.SeedDemo()
//	endpoint := cloud.Start()
//	defer endpoint.Close()
//	accounts, err := armstorage.NewAccountsClient(
//		demo.Subscription, endpoint.Credential("tester"), endpoint.ClientOptions())
package fakecloud
