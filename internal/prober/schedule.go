package prober

import "time"

const (
	// jitter is the maximum deviation of a probe, as a fraction of the interval.
	jitter = 0.1
	// minPause is the minimum pause between two probes, as a fraction of the interval.
	minPause = 0.1
	// initialRetry is the delay after a failed probe of a replica without a result, as a fraction of the
	// interval.
	initialRetry = 0.25
	// batchWindow is the minimum time between two runs of the scheduler. Starting repeated probes in
	// batches was measured to take half the CPU time of starting them one by one.
	batchWindow = 250 * time.Millisecond
)

// nextProbe is the due time of a replica after a probe with the given start and end.
func (p *Prober) nextProbe(m *member, first bool, started, ended time.Time) time.Time {
	interval := m.entry.target.Interval
	due := started.Add(scale(interval, 1-jitter+2*jitter*p.random()))
	if first && m.history.failures == 0 {
		// After a restart all first probes start at once; the second ones are spread.
		due = started.Add(p.spread(interval))
	}
	isStarting := m.history.failures > 0 && (m.history.state == Unknown || m.unready)
	if isStarting || m.unlisted {
		due = started.Add(scale(interval, initialRetry))
	}
	if m.history.failures > 0 && (m.history.state == Answering || m.history.state == Closed) {
		// The next probe decides whether the replica is Failing, which must be known two intervals after the
		// last response.
		deadline := m.lastAnswer.Add(2*interval - m.entry.target.Timeout - batchWindow)
		due = earliest(due, deadline)
	}
	return latest(due, ended.Add(scale(interval, minPause)))
}

// spread is a random part of the interval.
func (p *Prober) spread(interval time.Duration) time.Duration {
	return scale(interval, minPause+(1-minPause)*p.random())
}

func scale(d time.Duration, by float64) time.Duration {
	return time.Duration(float64(d) * by)
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// listSchedule schedules the counting of tools, prompts and resources of a server, by one replica at a
// time. After a failure it is retried after one interval, then two, four and so on up to the regular time.
type listSchedule struct {
	listing  bool
	failures int
	next     time.Time
}

func (c *listSchedule) due(now time.Time) bool {
	return !c.listing && !now.Before(c.next)
}

// postpone schedules the next attempt after the lists could not be read because of another server.
func (c *listSchedule) postpone(now time.Time, interval time.Duration) {
	c.next = now.Add(interval / 2)
}

func (c *listSchedule) schedule(now time.Time, counted bool, interval time.Duration, every int, random float64) {
	if counted {
		c.failures = 0
		c.next = now.Add(scale(interval*time.Duration(every), 0.5+random))
		return
	}
	wait := every
	if c.failures < 16 {
		wait = min(every, 1<<c.failures)
	}
	c.failures++
	// Half an interval less, because of the jitter of the next probe.
	c.next = now.Add(scale(interval, float64(wait)-0.5))
}

// updateServer stores the description of the server. All replicas with one token run the same server, so
// only that of the first replica is used, and those of others while there is none.
func (e *entry) updateServer(a answer, first bool) {
	if a.listed {
		e.listErr = a.listErr
	}
	if e.server != nil && !first && !a.listed {
		return
	}
	server := a.server
	if !a.listed {
		server.resetCounts()
	}
	if e.server != nil && server.sameIdentity(*e.server) {
		server.keepCounts(*e.server)
	} else if !a.listed {
		// Another server may have other tools.
		e.listSchedule.next = time.Time{}
	}
	e.server = &server
}
