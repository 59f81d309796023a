// Package prober probes thousands of MCP servers repeatedly and in the background. A controller sets what
// to probe and reads the latest result; neither call waits for a server:
//
//	p, err := prober.New(prober.Options{Metrics: metrics.Registry})
//	err = mgr.Add(p) // probes while this manager is the leader
//	builder.WatchesRawSource(p.Source())
//
//	p.Set(key, prober.Target{URL: url, Addresses: replicas, Version: rollout}) // in every reconcile
//	result, _ := p.Result(key)
//	p.Forget(key) // stops probing
//
// # Probes
//
// A probe does what a new client does: it connects, makes the handshake of the official SDK
// (server/discover, or initialize for servers with sessions), and closes its session and connection. It
// connects to the address of one replica, with the Host of the service. A full probe also counts tools,
// prompts and resources. One replica of a server at a time gets a full probe: when the token or the
// version is new, when the server reports another version, and every ListEvery intervals. Notifications
// of changed lists would need an open connection and are not received. A list that cannot be read does
// not make a server Failing.
//
// With Target.Contract, full probes also digest the tools, prompts and resource templates. Each new replica is listed
// with its first probe. The others are listed again when the first one offers something else, and then less and less
// often while they differ. So a contract costs no requests with the probes between. With Target.Verify, each probe lists:
// another contract is found within an interval, or within two if the lists of other servers of the namespace take long.
//
// # Results
//
// A replica is Failing after two failed probes in a row. The second one follows early enough that a
// server that stops responding is Failing within two intervals, if the timeout is at most 40 % of the
// interval and a slot is free. A replica without a successful probe may still be starting: it is probed
// again after a quarter of the interval, and is Failing after four failures in a row. The state of a
// server is that of its worst replica.
//
// A Result is kept in memory only. After a restart of the manager, or with a new replica, the State is
// Unknown until all replicas have a result. First probes are due immediately and have priority. Unknown
// is not a verdict: a controller should keep a condition that is True for the same rollout, and otherwise
// wait and show Result.Err, if set.
//
// # Scheduling
//
// One goroutine schedules probes with a heap; at most Concurrency others run them. Half of the slots are the
// prompt lane. The other half are the slow lane, for probes that take longer than a second and for replicas
// whose last probe did. A probe that takes longer than a second moves to the slow lane while it runs. If
// that has no slot and another probe needs the one of the prompt lane, the probe ends and is repeated in
// the slow lane.
//
// In each lane, a free slot goes to the namespace that holds the fewest, and no namespace holds all slots of
// the slow lane. Within a namespace, due probes run in the order of their deadlines, which is the due time
// for first probes and for probes that decide whether a server is Failing, and one interval later for
// others. First probes after a restart start immediately, second ones are spread over the interval, and
// every period has a jitter of ten percent.
//
// # Security
//
// Servers are untrusted. Credentials are sent only to the scheme and host of the URL; redirects to other
// hosts are not followed; certificates are always verified; proxies from the environment are not used.
// Errors and logs contain no text from the server, so they neither leak credentials nor change from probe
// to probe.
//
// The memory of a probe is bounded by constants. At most 1 MiB is read for the handshake and 4 MiB more for
// the lists. The items of lists are counted while they are read, and are not kept; see reducer. One server
// of a namespace is listed at a time.
//
// # Limitations
//
// A session whose ID never reached the prober cannot be closed. Only HTTP/1.1 is supported.
package prober
