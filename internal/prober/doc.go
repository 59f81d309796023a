// Package prober asks thousands of MCP servers, again and again, whether the protocol answers, and
// holds up nobody while it does. A controller declares what to probe and reads what has been found;
// neither waits for a server:
//
//	p, err := prober.New(prober.Options{Metrics: metrics.Registry})
//	err = mgr.Add(p) // probes while this manager leads
//	builder.WatchesRawSource(p.Source())
//
//	p.Set(key, prober.Target{URL: url, Addresses: replicas, Version: rollout}) // in every reconcile
//	result, _ := p.Result(key)
//	p.Forget(key) // when there is nothing to probe any more
//
// # What a probe is
//
// A probe is what a new client does: it connects, makes the handshake of the official SDK
// (server/discover, or initialize for servers with sessions), closes its session and its
// connection. It goes to one replica, by the replica's address and under the Host of the service.
// A full probe also counts tools, prompts and resources, one replica of a server at a time, when
// the token or the version is new, when the server says that it is another version, and every
// ListEvery intervals;
// notifications that a list has changed would need a connection that stays open, and are not
// listened for. Whether the lists can be read does not decide whether the server answers.
//
// # What a result is
//
// A replica is Failing when two probes in a row have failed. The second follows early enough that a
// server which stops answering is Failing within two intervals, if the timeout is at most 40 % of
// the interval and there is a slot. A replica that has never answered may still be on its way up: it
// is asked again after a quarter of the interval, and is Failing when four in a row have failed. A
// server is what its worst replica is.
//
// A Result is this process's memory and never the object's. After a restart of the manager, or with
// a new replica, the State is Unknown until every replica has been judged, which takes a moment if
// it answers, because first probes are due at once and go ahead of others. Unknown is no verdict. A
// controller should leave a condition that is True for the same rollout as it is and wait, and
// otherwise say that it waits, with Result.Err if there is one.
//
// # How probes are scheduled
//
// One goroutine keeps the schedule, a heap; at most Concurrency others probe. What is due is probed
// in the order of deadlines: first probes, and those that decide whether a server is Failing, have
// theirs at once, the others an interval later. Servers that timed out wait in a lane of their own
// with half of the slots, so that however many hang the others are probed in time. First probes
// after a restart come at once, the second ones spread over the interval, and each period varies by
// ten percent.
//
// # What it does not trust
//
// A server may be anybody's. Credentials go to the URL's own scheme and host and are never followed
// anywhere else; no answer is read beyond a limit (1 MiB for a handshake, 4 MiB more for the
// lists); certificates are always verified; no proxy of the environment is used. Errors and logs
// hold nothing that a server has said, so no credential that it echoes and nothing that changes from
// probe to probe.
//
// # What it cannot know
//
// A session that a server opened and did not tell, because its answer never came, cannot be closed.
// Only HTTP/1.1 is spoken.
package prober
