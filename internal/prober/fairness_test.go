package prober

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

// hangs is a server that does not respond before the timeout of the probe, on the clock of the simulation.
func (s *simulation) hangs(ctx context.Context, j job) answer {
	return s.responds(ctx, j, j.timeout, answer{err: &Error{Kind: Timeout}})
}

// responds is a server that responds after some time, on the clock of the simulation.
func (s *simulation) responds(ctx context.Context, _ job, after time.Duration, with answer) answer {
	timer := s.clock.NewTimer(after)
	defer timer.Stop()
	s.mu.Lock()
	s.sequence++
	id := s.sequence
	s.responses[id] = s.clock.Now().Add(after)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.responses, id)
	}()
	select {
	case <-ctx.Done():
		return answer{err: &Error{Kind: Timeout}}
	case <-timer.C():
		return with
	}
}

// settleAll waits until the probes that must have ended have ended, and those that can start have started.
func (s *simulation) settleAll() {
	s.t.Helper()
	NewWithT(s.t).Eventually(func() bool {
		s.Prober.mu.Lock()
		defer s.Prober.mu.Unlock()
		s.wakeScheduler()
		now := s.clock.Now()
		if next, ok := s.queue.next(); ok && !next.After(now) {
			return false
		}
		for m := range s.queue.prompt.running {
			if m.displaced {
				return false
			}
		}
		return s.onlyWaiting(now) && (s.queue.prompt.free() == 0 || s.queue.prompt.backlog() == 0) && !s.canTakeSlow() && len(s.Prober.changed) == 0
	}).WithTimeout(testTimeout).WithPolling(100 * time.Microsecond).Should(BeTrue())
}

// running is the number of running probes.
func (q *queue) running() int { return len(q.prompt.running) + len(q.slow.running) }

// onlyWaiting reports whether all running probes wait for a response that is not due.
func (s *simulation) onlyWaiting(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.responses {
		if !at.After(now) {
			return false
		}
	}
	return len(s.responses) == s.queue.running()
}

func (s *simulation) canTakeSlow() bool {
	slow := s.queue.slow
	for namespace, share := range slow.shares {
		if len(share.due) > 0 && slow.accepts(namespace, slow.fairShare()) {
			return true
		}
	}
	return false
}

// starts records when each host is probed.
func (s *simulation) starts(host string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var starts []time.Time
	for _, j := range s.jobs {
		if j.url.Host == host {
			starts = append(starts, j.started)
		}
	}
	return starts
}

// expectProbed expects that a host was probed regularly, and never later than two intervals after the last
// time.
func (s *simulation) expectProbed(host string, begin time.Time, interval time.Duration, intervals int) {
	s.t.Helper()
	g := NewWithT(s.t)
	starts := s.starts(host)
	g.Expect(len(starts)).To(BeNumerically(">=", intervals*3/4), host)
	last := begin
	for _, at := range append(starts, s.clock.Now()) {
		g.Expect(at.Sub(last)).To(BeNumerically("<=", 2*interval), host)
		last = at
	}
}

// A tenant whose servers hang, with the longest timeout that was ever allowed, must not keep others from
// being probed. Nor must they keep servers that need some seconds from it.
func TestServersThatHangDelayNoOthers(t *testing.T) {
	const hanging, intervals = 200, 10
	for name, test := range map[string]struct {
		namespaces int
		own        bool
		interval   time.Duration
	}{
		"all in one namespace":                        {namespaces: 1, own: true, interval: 30 * time.Second},
		"all in the namespace of the healthy one":     {namespaces: 1, interval: 30 * time.Second},
		"in ten namespaces":                           {namespaces: 10, own: true, interval: 30 * time.Second},
		"in ten namespaces, one that of the healthy":  {namespaces: 10, interval: 30 * time.Second},
		"in 200 namespaces":                           {namespaces: 200, own: true, interval: 30 * time.Second},
		"all in one namespace, with short intervals":  {namespaces: 1, own: true, interval: 5 * time.Second},
		"in ten namespaces, with the longest timeout": {namespaces: 10, own: true, interval: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := newSimulation(t, DefaultConcurrency)
			s.setScript(func(ctx context.Context, j job) answer {
				switch j.url.Host {
				case "healthy":
					return answer{listed: j.list}
				case "slow":
					return s.responds(ctx, j, 3*time.Second, answer{listed: j.list})
				default:
					return s.hangs(ctx, j)
				}
			})
			for i := range hanging {
				key := types.NamespacedName{Namespace: fmt.Sprintf("tenant-%d", i%test.namespaces), Name: fmt.Sprint(i)}
				s.Set(key, Target{URL: fmt.Sprintf("http://hanging-%d/mcp", i), Interval: test.interval, Timeout: time.Hour})
			}
			others := "tenant-0"
			if test.own {
				others = "other"
			}
			s.Set(types.NamespacedName{Namespace: others, Name: "healthy"}, Target{URL: "http://healthy/mcp", Interval: test.interval})
			hasSlow := test.own && test.namespaces <= 10
			if hasSlow {
				s.Set(types.NamespacedName{Namespace: others, Name: "slow"}, Target{URL: "http://slow/mcp", Interval: test.interval})
			}
			begin := s.clock.Now()
			start(t, s.Prober)
			s.settleAll()
			for s.clock.Since(begin) < intervals*test.interval {
				s.clock.Step(test.interval / 60)
				s.settleAll()
			}
			s.expectProbed("healthy", begin, test.interval, intervals)
			if hasSlow {
				s.expectProbed("slow", begin, test.interval, intervals)
			}
			for i := range hanging {
				g.Expect(s.starts(fmt.Sprintf("hanging-%d", i))).NotTo(BeEmpty())
			}
		})
	}
}

// A slot of the slow lane that is not returned is lost: after as many timeouts as it has slots,
// servers in it would never be probed again.
func TestSlowLaneGetsItsSlotsBack(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 4)
	s.setScript(s.hangs)
	const servers = 6
	for i := range servers {
		s.Set(name(fmt.Sprint(i)), Target{URL: fmt.Sprintf("http://s%d/mcp", i), Interval: 20 * time.Second, Timeout: 2 * time.Second})
	}
	start(t, s.Prober)
	run := func(d time.Duration) {
		for ; d > 0; d -= 250 * time.Millisecond {
			s.settleAll()
			s.clock.Step(250 * time.Millisecond)
		}
		s.settleAll()
	}
	run(5 * time.Minute)
	for i := range servers {
		g.Expect(s.count(fmt.Sprintf("s%d", i))).To(BeNumerically(">=", 12))
		g.Expect(s.result(fmt.Sprint(i)).State).To(Equal(Failing))
	}

	// The servers recover. A removed one returns its slot, too.
	s.Forget(name("0"))
	s.setScript(func(_ context.Context, j job) answer { return answer{listed: j.list} })
	run(time.Minute)
	for i := 1; i < servers; i++ {
		g.Expect(s.result(fmt.Sprint(i)).State).To(Equal(Answering))
	}
	s.Prober.mu.Lock()
	defer s.Prober.mu.Unlock()
	g.Expect(s.queue.running()).To(BeZero())
	g.Expect(s.queue.slow.shares).To(BeEmpty())
	g.Expect(s.queue.prompt.shares).To(BeEmpty())
}
