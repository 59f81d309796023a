package prober

import "time"

const (
	// jitter is by which part of the interval a probe may come earlier or later.
	jitter = 0.1
	// breath is the part of the interval that is left between two probes at least.
	breath = 0.1
	// sooner is the part of the interval after which a replica is asked again that has not been judged
	// yet and did not answer.
	sooner = 0.25
	// tick is how long the scheduler lets repeated probes gather. To start them one by one, with the
	// process falling asleep in between, was measured to take twice the processor time.
	tick = 250 * time.Millisecond
)

// nextProbe is when a replica is due again after a probe that started and ended at these times.
func (p *Prober) nextProbe(m *member, first bool, started, ended time.Time) time.Time {
	interval := m.entry.target.Interval
	due := started.Add(scale(interval, 1-jitter+2*jitter*p.random()))
	if first && m.history.failures == 0 {
		// All first probes come at once, after a restart for one. The second ones must not.
		due = started.Add(p.spread(interval))
	}
	if m.history.failures > 0 && m.history.state == Unknown {
		due = started.Add(scale(interval, sooner))
	}
	if m.history.failures > 0 && m.history.state == Answering {
		// The next probe decides. Its verdict is due two intervals after the last answer.
		deadline := m.lastAnswer.Add(2*interval - m.entry.target.Timeout - tick)
		due = earliest(due, deadline)
	}
	return latest(due, ended.Add(scale(interval, breath)))
}

// spread is a random part of an interval.
func (p *Prober) spread(interval time.Duration) time.Duration {
	return scale(interval, breath+(1-breath)*p.random())
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

// catalog is when the tools, prompts and resources of a server are to be counted. One replica at a
// time is asked for them, the first one that answers; a list that failed is tried again after one
// interval, then two, four and so on up to the regular time.
type catalog struct {
	listing  bool
	failures int
	next     time.Time
}

func (c *catalog) due(now time.Time) bool {
	return !c.listing && !now.Before(c.next)
}

func (c *catalog) schedule(now time.Time, counted bool, interval time.Duration, every int, random float64) {
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
	// The half leaves the next probe room for its jitter.
	c.next = now.Add(scale(interval, float64(wait)-0.5))
}

// learn takes over what a replica says of its server. Replicas under one token run the same
// server, so the first one speaks for all; the others are heard while nothing is known.
func (e *entry) learn(a answer, listed, first bool) {
	if e.server != nil && !first && !listed {
		return
	}
	server := a.server
	if !listed {
		server.uncount()
	}
	if e.server != nil && server.sameIdentity(*e.server) {
		server.keepCounts(*e.server)
	} else if !listed {
		// Another server than before may have other tools.
		e.catalog.next = time.Time{}
	}
	e.server = &server
}
