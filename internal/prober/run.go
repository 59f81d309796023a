package prober

import (
	"context"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

var (
	_ manager.Runnable               = (*Prober)(nil)
	_ manager.LeaderElectionRunnable = (*Prober)(nil)
)

// NeedLeaderElection implements manager.LeaderElectionRunnable: only the leader probes, so that
// standing by costs the servers nothing.
func (p *Prober) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It probes until ctx is done, and returns when the last probe
// has ended and closed its session. It may be called once.
func (p *Prober) Start(ctx context.Context) error {
	log.FromContext(ctx).Info("Starting prober", "concurrency", p.options.Concurrency)
	defer p.running.Wait()
	timer := p.options.Clock.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		p.tell()
		reset(timer, p.dispatch(ctx))
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C():
		case <-p.wake:
		}
	}
}

// reset sets a timer that may have gone off unheard, because the scheduler was woken otherwise.
func reset(timer clock.Timer, wait time.Duration) {
	if !timer.Stop() {
		select {
		case <-timer.C():
		default:
		}
	}
	timer.Reset(wait)
}

// dispatch starts what is due and has a slot, and returns how long nothing else will be due. A slot
// that becomes free wakes the scheduler by itself.
func (p *Prober) dispatch(ctx context.Context) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.options.Clock.Now()
	p.queue.promote(now)
	for m := p.queue.take(); m != nil; m = p.queue.take() {
		p.launch(ctx, m, now)
	}
	wait := time.Hour
	if due, ok := p.queue.next(); ok {
		wait = max(tick, due.Sub(now))
	}
	p.alarm = now.Add(wait)
	return wait
}

func (p *Prober) launch(ctx context.Context, m *member, now time.Time) {
	p.metrics.delay.Observe(now.Sub(m.due).Seconds())
	ctx, m.cancel = context.WithCancel(ctx)
	j := p.job(m, now)
	p.running.Go(func() {
		answer := p.probe(ctx, j)
		p.finish(ctx, m, j, answer)
	})
}

// job is a copy of all that a probe needs, because the entry may change while it runs.
func (p *Prober) job(m *member, now time.Time) job {
	e := m.entry
	j := job{
		url: e.url, tls: e.tls, invalid: e.invalid, address: m.address, version: m.version, started: now,
		transport: e.target.Transport, header: e.header, timeout: e.target.Timeout,
		list: e.catalog.due(now) && (m == e.members[0] || e.members[0].history.failures > 0),
	}
	if p.options.Rewrite != nil {
		j.address = ""
	}
	if j.list {
		e.catalog.listing = true
		// Ask for everything anew: the server may have learnt a newer protocol.
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
	e := m.entry
	if j.list {
		e.catalog.listing = false
	}
	switch {
	case m.gone:
	case m.again:
		m.again = false
		p.enqueueFresh(m)
	case ended:
		// The manager stops.
	default:
		p.record(m, j, a)
		p.queue.add(m)
		p.judge(e)
	}
	if p.queue.crowded() || m.due.Before(p.alarm) {
		p.rouse()
	}
}

// record puts down what a probe has found, and when the next is due.
func (p *Prober) record(m *member, j job, a answer) {
	now := p.options.Clock.Now()
	e := m.entry
	p.metrics.observe(a.err, now.Sub(j.started))
	first := m.fresh
	m.history = m.history.next(a.err)
	m.fresh = false
	m.slow = a.err != nil && a.err.Kind == Timeout
	m.version = a.version
	if a.err == nil {
		m.lastAnswer = j.started
		e.learn(a, j.list, m == e.members[0])
	}
	if j.list {
		e.catalog.schedule(now, a.counted, e.target.Interval, p.options.ListEvery, p.random())
	}
	m.due = p.nextProbe(m, first, j.started, now)
}
