package prober

import (
	"context"
	"net"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

var (
	_ manager.Runnable               = (*Prober)(nil)
	_ manager.LeaderElectionRunnable = (*Prober)(nil)
)

// NeedLeaderElection implements manager.LeaderElectionRunnable: only the leader probes.
func (p *Prober) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It probes until ctx is done, and returns after the last probe has
// closed its session. It must be called only once.
func (p *Prober) Start(ctx context.Context) error {
	log.FromContext(ctx).Info("Starting prober", "concurrency", p.options.Concurrency)
	defer p.running.Wait()
	timer := p.options.Clock.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		p.notifySubscribers()
		reset(timer, p.dispatch(ctx))
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C():
		case <-p.wake:
		}
	}
}

// reset resets a timer that may have fired without being received. A timer of a clock other than that of Go keeps such a time,
// and a fake clock waits forever until it is received.
func reset(timer clock.Timer, wait time.Duration) {
	if !timer.Stop() {
		select {
		case <-timer.C():
		default:
		}
	}
	timer.Reset(wait)
}

// dispatch starts due probes while slots are free, and returns the time until it is to run again. A slot
// that becomes free wakes the scheduler.
func (p *Prober) dispatch(ctx context.Context) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.options.Clock.Now()
	p.queue.promote(now)
	for _, m := range p.queue.separate(now) {
		m.displaced = true
		m.cancel()
	}
	for m := p.queue.take(); m != nil; m = p.queue.take() {
		p.startProbe(ctx, m, now)
	}
	wait := time.Hour
	if due, ok := p.queue.next(); ok {
		wait = max(batchWindow, due.Sub(now))
	}
	p.nextWake = now.Add(wait)
	return wait
}

func (p *Prober) startProbe(ctx context.Context, m *member, now time.Time) {
	p.metrics.delay.Observe(now.Sub(m.due).Seconds())
	m.started, m.stuck = now, false
	ctx, m.cancel = context.WithCancel(ctx)
	j := p.job(m, now)
	p.running.Go(func() {
		answer := p.probe(ctx, j)
		p.finish(ctx, m, j, answer)
	})
}

// job copies the data of a probe, because the entry may change while it runs.
func (p *Prober) job(m *member, now time.Time) job {
	e := m.entry
	j := job{
		url: e.url, tls: e.tls, invalid: e.invalid, address: m.address, version: m.version, started: now,
		transport: e.target.Transport, header: e.header, timeout: e.target.Timeout,
		lists:    e.namespace.lists,
		full:     e.listSchedule.due(now) && (m == e.members[0] || e.members[0].history.failures > 0),
		contract: e.target.Contract, targetVersion: e.target.Version,
	}
	j.list = j.full || e.observes(m, now)
	if p.options.Rewrite != nil {
		j.address = ""
	}
	if p.options.Host != "" && e.url != nil {
		j.host = p.options.Host
		if port := e.url.Port(); port != "" {
			j.host = net.JoinHostPort(j.host, port)
		}
	}
	if j.full {
		e.listSchedule.listing = true
		// Request the newest version again: the server may support it now.
		j.version = ""
	}
	return j
}

func (p *Prober) finish(ctx context.Context, m *member, j job, a answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue.release(m)
	ended := ctx.Err() != nil
	m.cancel()
	m.cancel = nil
	displaced := m.displaced
	m.displaced = false
	e := m.entry
	if j.full {
		e.listSchedule.listing = false
	}
	switch {
	case m.removed:
	case m.restart:
		m.restart = false
		p.enqueueFresh(m)
	case displaced && a.err != nil:
		m.slow = true
		p.queue.add(m)
	case ended && !displaced:
		// The manager stops.
	default:
		p.record(m, j, a)
		p.queue.add(m)
		p.updateState(e)
	}
	if p.queue.hasBacklog() || m.due.Before(p.nextWake) {
		p.wakeScheduler()
	}
}

// record stores the result of a probe and schedules the next one.
func (p *Prober) record(m *member, j job, a answer) {
	now := p.options.Clock.Now()
	e := m.entry
	p.metrics.observe(a.err, now.Sub(j.started))
	first := m.fresh
	m.history = m.history.next(a.err)
	m.fresh = false
	m.slow = now.Sub(j.started) >= promptLimit || a.err != nil && a.err.Kind == Timeout
	m.version = a.version
	m.unlisted = false
	m.noteRefusal(a.err)
	if a.err == nil || a.err.closed() {
		m.lastAnswer = j.started
	}
	if a.err == nil {
		p.updateContract(m, j, a)
		switch {
		case m.unready: // clients do not reach it
		case m == e.members[0] || j.full:
			e.updateServer(a, m == e.members[0])
		default:
			e.updateServer(answer{server: a.server}, false)
		}
	}
	switch {
	case !j.full || a.err != nil: // another replica may list meanwhile, and this one once it responds
	case j.targetVersion != e.target.Version: // it may have listed the former version
	case !a.listed:
		e.listSchedule.postpone(now, e.target.Interval)
	default:
		e.listSchedule.schedule(now, a.counted(), e.target.Interval, p.options.ListEvery, p.random())
	}
	m.due = p.nextProbe(m, first, j.started, now)
}
