// Package fakecloud is a fake Azure for tests and demos: an HTTP(S) server that implements the part of
// Azure Resource Manager that storage accounts with customer-managed keys need. The official SDK works
// with it unchanged, so no code has to be mocked. docs/fakecloud.md lists the differences from Azure.
//
// # Knobs
//
// Delays and failures of a real cloud are set by [Knobs]: long-running operations, grants that take
// minutes to propagate, throttling with Retry-After, operations in progress, lost responses. [Instant]
// turns all of them off, and [Realistic] sets them to the values of Azure.
//
// The time comes from a clock that can be injected. Random decisions depend on the seed, the resource
// and the number of earlier decisions about it, so the same requests get the same responses in every
// run, also if objects are reconciled in parallel.
//
// Nothing runs in the background. A state that changes over time is stored with the time of the change,
// and every read computes the current state.
//
// # The ledger
//
// The ledger records each write request: caller, time, request IDs, response and effect. A test that
// expects that nothing was created twice checks [Server.Created].
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
