package prober

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// simulation is a prober with a fake clock and with functions as servers.
type simulation struct {
	*Prober
	t     *testing.T
	clock *clocktesting.FakeClock

	mu      sync.Mutex
	script  func(context.Context, job) answer
	probes  map[string]int
	jobs    []job
	changed map[types.NamespacedName]int
	// responses are when servers that wait respond.
	responses map[int]time.Time
	sequence  int
	// ends are closed when probes that hang end.
	ends []<-chan struct{}
}

func newSimulation(t *testing.T, concurrency int) *simulation {
	s := &simulation{
		t:       t,
		clock:   clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
		script:  func(context.Context, job) answer { return answer{listed: true} },
		probes:  map[string]int{},
		changed: map[types.NamespacedName]int{}, responses: map[int]time.Time{},
	}
	s.Prober = newProber(t, Options{Concurrency: concurrency, Clock: s.clock, Notify: func(key types.NamespacedName) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed[key]++
	}})
	s.probe = func(ctx context.Context, j job) answer {
		s.mu.Lock()
		s.probes[j.url.Host]++
		s.jobs = append(s.jobs, j)
		script := s.script
		s.mu.Unlock()
		return script(ctx, j)
	}
	return s
}

// probed is a simulation after the first probes of the target "web".
func probed(t *testing.T, target Target) *simulation {
	t.Helper()
	s := newSimulation(t, 4)
	s.Set(name("web"), target)
	start(t, s.Prober)
	s.settle()
	return s
}

func (s *simulation) count(host string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.probes[host]
}

func (s *simulation) setScript(script func(context.Context, job) answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = script
}

// hang keeps a probe running until a channel is closed, while the clock advances.
func (s *simulation) hang(until <-chan struct{}) {
	s.mu.Lock()
	s.ends = append(s.ends, until)
	s.mu.Unlock()
	<-until
}

// hanging is the number of probes that hang.
func (s *simulation) hanging() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = slices.DeleteFunc(s.ends, func(until <-chan struct{}) bool {
		select {
		case <-until:
			return true
		default:
			return false
		}
	})
	return len(s.ends)
}

// settle waits until all due probes have run, except for those that hang.
func (s *simulation) settle() {
	s.t.Helper()
	NewWithT(s.t).Eventually(func() bool {
		s.Prober.mu.Lock()
		defer s.Prober.mu.Unlock()
		next, ok := s.queue.next()
		// The scheduler may have set its timer before the clock was advanced.
		s.wakeScheduler()
		late := ok && !next.After(s.clock.Now())
		return !late && s.queue.prompt.backlog() == 0 && s.queue.running() == s.hanging() && len(s.Prober.changed) == 0
	}).WithTimeout(testTimeout).WithPolling(time.Millisecond).Should(BeTrue())
}

// advance advances the clock in small steps.
func (s *simulation) advance(d, step time.Duration) {
	s.t.Helper()
	for ; d > 0; d -= step {
		s.clock.Step(step)
		s.settle()
	}
}

func (s *simulation) result(key string) Result {
	result, ok := s.Result(name(key))
	NewWithT(s.t).Expect(ok).To(BeTrue())
	return result
}

func fails(kind ErrorKind) func(context.Context, job) answer {
	return func(context.Context, job) answer { return answer{err: &Error{Kind: kind}} }
}

func TestHangingServerDelaysNoOthers(t *testing.T) {
	g := NewWithT(t)
	const targets = 2000
	s := newSimulation(t, 8)
	s.setScript(func(ctx context.Context, j job) answer {
		if j.url.Host == "s0" {
			s.hang(ctx.Done())
		}
		return answer{listed: true}
	})
	for i := range targets {
		s.Set(name(fmt.Sprint(i)), Target{URL: fmt.Sprintf("http://s%d/mcp", i), Interval: 30 * time.Second})
	}
	start(t, s.Prober)
	s.settle()
	s.advance(5*time.Minute, time.Second)
	g.Expect(s.count("s0")).To(Equal(1))
	for i := 1; i < targets; i++ {
		g.Expect(s.count(fmt.Sprintf("s%d", i))).To(And(BeNumerically(">=", 10), BeNumerically("<=", 13)))
	}
}

func TestProbesSpreadOverTheInterval(t *testing.T) {
	g := NewWithT(t)
	const targets = 1000
	s := newSimulation(t, 8)
	for i := range targets {
		s.Set(name(fmt.Sprint(i)), Target{URL: "http://same/mcp", Interval: 30 * time.Second})
	}
	start(t, s.Prober)
	s.settle()
	g.Expect(s.count("same")).To(Equal(targets), "all first probes come at once")
	for range 90 {
		before := s.count("same")
		s.advance(time.Second, time.Second)
		g.Expect(s.count("same")-before).To(BeNumerically("<", 3*targets/30), "later probes are spread")
	}
}

func TestServersWithTimeoutsShareHalfOfTheSlots(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 4)
	hang := false
	s.setScript(func(ctx context.Context, j job) answer {
		if j.url.Host == "good" {
			return answer{listed: true}
		}
		if hang {
			s.hang(ctx.Done())
		}
		return answer{err: &Error{Kind: Timeout}}
	})
	for i := range 6 {
		s.Set(types.NamespacedName{Namespace: fmt.Sprint("tenant-", i%2), Name: fmt.Sprint(i)}, Target{URL: "http://bad/mcp"})
	}
	s.Set(name("good"), Target{URL: "http://good/mcp"})
	start(t, s.Prober)
	s.settle()
	hang = true
	s.advance(5*time.Minute, time.Second)
	g.Expect(s.count("good")).To(BeNumerically(">=", 10))
	g.Expect(s.count("bad")).To(Equal(6 + 2))
}

func TestFirstProbesHavePriority(t *testing.T) {
	g := NewWithT(t)
	q := newQueue(1)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	e := &entry{key: name("web"), target: Target{Interval: 30 * time.Second}}
	regular := &member{entry: e, due: now.Add(-time.Second)}
	overdue := &member{entry: e, due: now.Add(-31 * time.Second)}
	fresh := &member{entry: e, due: now, fresh: true}
	failedOnce := &member{entry: e, due: now.Add(time.Millisecond), history: history{state: Answering, failures: 1}}
	failing := &member{entry: e, due: now, history: history{state: Failing, failures: 2}}
	for _, m := range []*member{failing, regular, fresh, failedOnce, overdue} {
		q.add(m)
	}
	q.promote(now.Add(time.Second))
	for _, expected := range []*member{overdue, fresh, failedOnce, regular, failing} {
		m := q.take()
		g.Expect(m).To(BeIdenticalTo(expected))
		g.Expect(q.take()).To(BeNil())
		q.release(m)
	}
}

func TestStoppedServerIsFailingWithinTwoIntervals(t *testing.T) {
	g := NewWithT(t)
	p := newProber(t, Options{})
	interval := 30 * time.Second
	for _, timeout := range []time.Duration{time.Second, 5 * time.Second, interval * 2 / 5} {
		for _, random := range []float64{0, 0.5, 1} {
			p.random = func() float64 { return random }
			answered := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			m := &member{
				entry:      &entry{target: Target{Interval: interval, Timeout: timeout}},
				history:    history{state: Answering},
				lastAnswer: answered,
			}
			first := p.nextProbe(m, false, answered, answered)
			m.history = m.history.next(&Error{Kind: Timeout})
			second := p.nextProbe(m, false, first, first.Add(timeout))
			g.Expect(second.Add(timeout)).NotTo(BeTemporally(">", answered.Add(2*interval)))
			g.Expect(second.Sub(first)).To(BeNumerically(">=", interval/10))
		}
	}
}

// A server that requires credentials, which the manager does not have, responds.
func TestStoppedServerWithCredentialsIsFailingWithinTwoIntervals(t *testing.T) {
	g := NewWithT(t)
	const interval = 30 * time.Second
	s := newSimulation(t, 4)
	s.setScript(fails(Unauthorized))
	s.Set(name("web"), Target{URL: "http://web/mcp", Interval: interval, Timeout: time.Second})
	start(t, s.Prober)
	s.settle()
	s.advance(interval, time.Second)
	s.Prober.mu.Lock()
	s.random = func() float64 { return 1 }
	s.Prober.mu.Unlock()
	responds := s.count("web")
	for s.count("web") == responds {
		s.advance(time.Second, time.Second)
	}
	g.Expect(s.result("web").State).To(Equal(Closed))

	s.setScript(fails(Refused))
	s.advance(2*interval, time.Second)

	g.Expect(s.result("web").State).To(Equal(Failing))
}

func TestServerThatFailsForSecondsIsNotFailing(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 4)
	s.random = func() float64 { return 0.5 }
	s.Set(name("web"), Target{URL: "http://web/mcp", Interval: 30 * time.Second})
	start(t, s.Prober)
	s.settle()
	s.setScript(fails(Refused))
	for s.count("web") == 1 {
		s.advance(time.Second, time.Second)
	}
	s.advance(5*time.Second, time.Second)
	g.Expect(s.result("web")).To(And(HaveField("State", Answering), HaveField("Answered", 0)))
}

func TestResultFollowsTheServer(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 4)
	key := name("web")
	s.Set(key, Target{URL: "http://web/mcp", Token: "1"})
	g.Expect(s.result("web")).To(Equal(Result{State: Unknown, Replicas: 1}))

	s.setScript(func(context.Context, job) answer {
		return answer{server: Server{Name: "web", Tools: 3}, listed: true}
	})
	start(t, s.Prober)
	s.settle()
	g.Expect(s.result("web")).To(Equal(Result{
		State: Answering, Replicas: 1, Answered: 1, Decided: 1, Server: &Server{Name: "web", Tools: 3},
	}))
	g.Eventually(func() int { s.mu.Lock(); defer s.mu.Unlock(); return s.changed[key] }).WithTimeout(testTimeout).Should(Equal(1))

	// Unchanged results cause no notification.
	s.advance(time.Minute, time.Second)
	g.Expect(s.changed[key]).To(Equal(1))

	s.setScript(fails(Refused))
	s.advance(time.Minute, time.Second)
	result := s.result("web")
	g.Expect(result.State).To(Equal(Failing))
	g.Expect(result.Err).To(Equal(&Error{Kind: Refused}))
	g.Expect(result.Server).To(Equal(&Server{Name: "web", Tools: 3}))

	// Failures of the old token do not count for the new one.
	s.setScript(func(context.Context, job) answer { return answer{server: Server{Name: "web 2"}, listed: true} })
	s.Set(key, Target{URL: "http://web/mcp", Token: "2"})
	s.settle()
	g.Expect(s.result("web")).To(And(HaveField("State", Answering), HaveField("Server", Equal(&Server{Name: "web 2"}))))
}

func TestSetOfSameTargetProbesNothing(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 4)
	target := func() Target {
		return Target{URL: "http://web/mcp", Bearer: Credential("one"), Addresses: []string{"b:1", "a:1"}}
	}
	s.Set(name("web"), target())
	start(t, s.Prober)
	s.settle()
	s.Set(name("web"), target())
	s.settle()
	g.Expect(s.count("web")).To(Equal(2))
	var due []time.Time
	for range 10 {
		s.Set(name("web"), target())
		due = append(due, s.queue.waiting[0].due)
	}
	g.Expect(due).To(HaveEach(due[0]), "nor does it postpone the next probe")

	rotated := target()
	rotated.Bearer = Credential("two")
	s.Set(name("web"), rotated)
	g.Expect(s.result("web").State).To(Equal(Answering), "the result is kept")
	s.settle()
	g.Expect(s.count("web")).To(Equal(4))
	g.Expect(s.jobs[len(s.jobs)-1].header.Get("Authorization")).To(Equal("Bearer two"))
}

func TestReplicasAreAddedAndRemoved(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 4)
	s.setScript(func(_ context.Context, j job) answer {
		if j.address == "bad:1" {
			return answer{err: &Error{Kind: Refused}}
		}
		return answer{listed: true}
	})
	s.Set(name("web"), Target{URL: "http://web/mcp", Addresses: []string{"a:1"}})
	start(t, s.Prober)
	s.settle()
	g.Expect(s.result("web")).To(HaveField("State", Answering))

	s.Set(name("web"), Target{URL: "http://web/mcp", Addresses: []string{"a:1", "bad:1"}})
	s.settle()
	g.Expect(s.result("web")).To(And(HaveField("State", Unknown), HaveField("Replicas", 2), HaveField("Answered", 1)))
	s.advance(time.Minute, time.Second)
	g.Expect(s.result("web")).To(And(HaveField("State", Failing), HaveField("Err", Equal(&Error{Kind: Refused}))))

	s.Set(name("web"), Target{URL: "http://web/mcp", Addresses: []string{"a:1"}})
	g.Expect(s.result("web")).To(And(HaveField("State", Answering), HaveField("Replicas", 1)))
}

func TestReusedAddressIsProbedAgain(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 4)
	target := func(identity string) Target {
		return Target{URL: "http://web/mcp", Addresses: []string{"a:1"}, Identities: map[string]string{"a:1": identity}}
	}
	s.Set(name("web"), target("one"))
	start(t, s.Prober)
	s.settle()
	s.Set(name("web"), target("one"))
	s.settle()
	g.Expect(s.count("web")).To(Equal(1))

	s.setScript(fails(Refused))
	s.Set(name("web"), target("two"))
	g.Expect(s.result("web")).To(And(HaveField("State", Unknown), HaveField("Decided", 0)))
	s.settle()
	g.Expect(s.count("web")).To(Equal(2))

	s.Forget(name("web"))
	s.advance(2*time.Minute, time.Second)
	g.Expect(s.count("web")).To(Equal(2), "neither pod is probed any more")
}

// Results of existing replicas stay when the version changes, and the server info is read again immediately.
func TestNewVersionReadsServerInfoAgain(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 4)
	tools := 3
	s.setScript(func(_ context.Context, j job) answer {
		return answer{server: Server{Name: "web", Capabilities: []string{"tools"}, Tools: tools}, listed: j.list}
	})
	s.Set(name("web"), Target{URL: "http://web/mcp", Version: "1"})
	start(t, s.Prober)
	s.settle()
	g.Expect(s.result("web").Server.Tools).To(Equal(3))

	tools = 4
	s.Set(name("web"), Target{URL: "http://web/mcp", Version: "2"})
	g.Expect(s.result("web").State).To(Equal(Answering))
	s.settle()
	g.Expect(s.result("web").Server.Tools).To(Equal(4))
	g.Expect(s.count("web")).To(Equal(2))
}

func TestNewVersionDuringAProbeDoesNotProbeTheReplicaTwice(t *testing.T) {
	g := NewWithT(t)
	p := newProber(t, Options{})
	p.Set(name("web"), Target{URL: "http://web/mcp", Version: "1"})
	p.queue.promote(p.options.Clock.Now())
	m := p.queue.take()
	m.fresh, m.cancel = false, func() {}
	p.Set(name("web"), Target{URL: "http://web/mcp", Version: "2"})
	g.Expect(p.queue.waiting).To(BeEmpty())
}

// A server can be upgraded without a new version of the target.
func TestDescriptionIsThatOfTheLastProbeOfTheFirstReplica(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 4)
	version := "1"
	s.setScript(func(_ context.Context, j job) answer {
		return answer{server: Server{Version: version + j.address}, listed: j.list}
	})
	s.Set(name("web"), Target{URL: "http://web/mcp", Addresses: []string{"a", "b"}, Interval: time.Minute})
	start(t, s.Prober)
	s.settle()
	g.Expect(s.result("web").Server.Version).To(Equal("1a"))
	version = "2"
	s.advance(2*time.Minute, time.Second)
	g.Expect(s.result("web").Server.Version).To(Equal("2a"))
}

// What a probe reads that began before the change may be that of the former version.
func TestNewVersionDuringAProbeReadsServerInfoAgain(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 4)
	responds := make(chan struct{})
	s.setScript(func(_ context.Context, j job) answer {
		<-responds
		return answer{server: Server{Name: "web", Capabilities: []string{"tools"}, Tools: 3}, listed: j.list}
	})
	s.Set(name("web"), Target{URL: "http://web/mcp", Version: "1"})
	start(t, s.Prober)
	g.Eventually(func() int { return s.count("web") }).WithTimeout(testTimeout).Should(Equal(1))

	s.setScript(func(_ context.Context, j job) answer {
		return answer{server: Server{Name: "web", Capabilities: []string{"tools"}, Tools: 4}, listed: j.list}
	})
	s.Set(name("web"), Target{URL: "http://web/mcp", Version: "2"})
	close(responds)
	s.settle()
	s.advance(time.Minute, time.Second)

	g.Expect(s.result("web").Server.Tools).To(Equal(4))
}

func TestStartingReplicaIsProbedMoreOften(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 4)
	s.setScript(fails(Refused))
	s.Set(name("web"), Target{URL: "http://web/mcp", Interval: 40 * time.Second})
	start(t, s.Prober)
	s.settle()
	s.advance(21*time.Second, time.Second)
	g.Expect(s.count("web")).To(Equal(3))
	g.Expect(s.result("web")).To(And(HaveField("State", Unknown), HaveField("Err", Equal(&Error{Kind: Refused}))))
	s.advance(10*time.Second, time.Second)
	g.Expect(s.result("web").State).To(Equal(Failing))

	s.setScript(func(context.Context, job) answer { return answer{listed: true} })
	s.advance(45*time.Second, time.Second)
	g.Expect(s.result("web").State).To(Equal(Answering))
}

func TestForgetAndNewTokenCancelTheProbe(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 4)
	hang := func(ctx context.Context, _ job) answer {
		s.hang(ctx.Done())
		return answer{err: &Error{Kind: Timeout}}
	}
	s.setScript(hang)
	s.Set(name("web"), Target{URL: "http://web/mcp", Token: "1"})
	start(t, s.Prober)
	s.settle()
	s.Set(name("web"), Target{URL: "http://web/mcp", Token: "2"})
	g.Eventually(func() int { return s.count("web") }).WithTimeout(testTimeout).Should(Equal(2))
	s.settle()
	g.Expect(s.result("web")).To(And(HaveField("State", Unknown), HaveField("Err", BeNil())))

	// A new credential restarts the running probe.
	s.Set(name("web"), Target{URL: "http://web/mcp", Token: "2", Bearer: Credential("x")})
	g.Eventually(func() int { return s.count("web") }).WithTimeout(testTimeout).Should(Equal(3))
	s.settle()

	s.Forget(name("web"))
	s.settle()
	_, ok := s.Result(name("web"))
	g.Expect(ok).To(BeFalse())
	s.advance(time.Minute, time.Second)
	g.Expect(s.count("web")).To(Equal(3))
}

// A probe can succeed in the moment in which it has to end for another one.
func TestProbeThatSucceedsAlthoughItIsDisplacedCounts(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 4)
	s.setScript(func(ctx context.Context, _ job) answer {
		s.hang(ctx.Done())
		return answer{listed: true}
	})
	s.Set(name("web"), Target{URL: "http://web/mcp"})
	start(t, s.Prober)
	s.settle()
	s.setScript(func(context.Context, job) answer { return answer{listed: true} })
	s.Prober.mu.Lock()
	m := s.entries[name("web")].members[0]
	m.displaced = true
	m.cancel()
	s.Prober.mu.Unlock()
	s.settle()
	g.Expect(s.result("web").State).To(Equal(Answering))
	s.advance(time.Minute, time.Second)
	g.Expect(s.count("web")).To(BeNumerically(">", 1), "it is probed again")
}

// Contexts that are not cancelled stay in the memory of their parent.
func TestContextOfAProbeEndsWithIt(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 4)
	ended := make(chan (<-chan struct{}), 1)
	s.setScript(func(ctx context.Context, _ job) answer {
		ended <- ctx.Done()
		return answer{listed: true}
	})
	s.Set(name("web"), Target{URL: "http://web/mcp"})
	start(t, s.Prober)
	s.settle()
	g.Expect(<-ended).To(BeClosed())
}

func TestDelayIsMeasuredFromTheDueTime(t *testing.T) {
	g := NewWithT(t)
	s := probed(t, Target{URL: "http://web/mcp", Interval: time.Minute})
	s.Prober.mu.Lock()
	m := s.entries[name("web")].members[0]
	late := 10 * time.Second
	wait := m.due.Add(late).Sub(s.clock.Now())
	s.Prober.mu.Unlock()
	s.clock.Step(wait)
	s.settle()
	g.Expect(s.count("web")).To(Equal(2))
	var delay dto.Metric
	g.Expect(s.metrics.delay.Write(&delay)).To(Succeed())
	g.Expect(delay.GetHistogram().GetSampleSum()).To(BeNumerically("~", late.Seconds(), 1e-6))
}

// The scheduler reads the queue before it waits.
func TestSchedulerIsWokenAlsoWhileItDoesNotWait(t *testing.T) {
	g := NewWithT(t)
	p := newProber(t, Options{})
	p.Set(name("web"), Target{URL: "http://web/mcp"})
	g.Expect(p.wake).To(Receive())
}

func TestFullProbesAreRareAndByOneReplica(t *testing.T) {
	g := NewWithT(t)
	s := probed(t, Target{URL: "http://web/mcp", Addresses: []string{"a:1", "b:1", "c:1"}, Version: "1"})
	s.advance(time.Hour, time.Second)
	lists := 0
	for _, j := range s.jobs {
		if j.list {
			lists++
			g.Expect(j.address).To(Equal("a:1"))
		}
	}
	g.Expect(s.count("web")).To(BeNumerically("~", 360, 40))
	g.Expect(lists).To(BeNumerically("~", 7, 5))
}

func TestFailedListIsRetriedWithBackoff(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := listSchedule{}
	waits := []time.Duration{}
	for range 100 {
		c.schedule(now, false, time.Minute, 20, 0.5)
		waits = append(waits, (c.next.Sub(now)+30*time.Second)/time.Minute)
	}
	g.Expect(waits[:5]).To(Equal([]time.Duration{1, 2, 4, 8, 16}))
	g.Expect(waits[5:]).To(HaveEach(time.Duration(20)))
	c.schedule(now, true, time.Minute, 20, 0.5)
	g.Expect(c).To(Equal(listSchedule{next: now.Add(20 * time.Minute)}))
}

// Servers that were listed at the same time, as after a restart of the manager, are not listed together ever after.
func TestListsSpreadOverTime(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for random, wait := range map[float64]time.Duration{0: 10 * time.Minute, 0.25: 15 * time.Minute, 0.5: 20 * time.Minute, 1: 30 * time.Minute} {
		c := listSchedule{}
		c.schedule(now, true, time.Minute, 20, random)
		g.Expect(c.next).To(Equal(now.Add(wait)), "between half and one and a half of the average")
	}
}

func TestCountsAreKeptUntilCountedAgain(t *testing.T) {
	g := NewWithT(t)
	e := &entry{}
	server := Server{Name: "web", Version: "1", Capabilities: []string{"tools"}}

	e.updateServer(answer{server: server}, false)
	g.Expect(*e.server).To(And(HaveField("Tools", NotCounted), HaveField("Prompts", 0)))

	server.Tools = 3
	e.updateServer(answer{server: server, listed: true}, true)
	g.Expect(e.server.Tools).To(Equal(3))

	later := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	e.listSchedule.next = later
	server.Tools = NotCounted
	e.updateServer(answer{server: server, listed: true, listErr: &Error{Kind: Timeout}}, true)
	e.updateServer(answer{server: server}, true)
	g.Expect(e.listErr).To(Equal(&Error{Kind: Timeout}), "until they are listed again")
	e.updateServer(answer{server: Server{Name: "another replica"}}, false)
	g.Expect(e.server.Name).To(Equal("web"))
	g.Expect(e.server.Tools).To(Equal(3), "a failed list keeps the counts")
	g.Expect(e.listSchedule.next).To(Equal(later))

	server.Version = "2"
	e.updateServer(answer{server: server}, true)
	g.Expect(e.server.Tools).To(Equal(NotCounted))
	g.Expect(e.listSchedule.due(later.Add(-time.Hour))).To(BeTrue(), "another version is listed again")

	e.listSchedule.next = later
	server.Version = "3"
	e.updateServer(answer{server: server, listed: true}, true)
	g.Expect(e.listSchedule.next).To(Equal(later), "unless it has just been listed")
}

func TestTimeoutIsLimited(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Target{Interval: time.Hour, Timeout: time.Hour}.complete().Timeout).To(Equal(30 * time.Second))
	g.Expect(Target{Interval: 10 * time.Second, Timeout: time.Hour}.complete().Timeout).To(Equal(10 * time.Second))
	g.Expect(Target{}.complete().Timeout).To(Equal(DefaultTimeout))
}

func TestOnlyTheLeaderProbes(t *testing.T) {
	NewWithT(t).Expect(newProber(t, Options{}).NeedLeaderElection()).To(BeTrue())
}

func TestChangedIntervalSpreadsTheNextProbes(t *testing.T) {
	g := NewWithT(t)
	const targets = 20
	s := newSimulation(t, 4)
	set := func(interval time.Duration) {
		for i := range targets {
			s.Set(name(fmt.Sprint(i)), Target{URL: "http://web/mcp", Interval: interval})
		}
	}
	set(2 * time.Hour)
	set(time.Hour)
	start(t, s.Prober)
	s.settle()
	g.Expect(s.count("web")).To(Equal(targets), "first probes are due immediately")

	set(20 * time.Second)
	s.advance(time.Second, time.Second)
	g.Expect(s.count("web")).To(Equal(targets), "not all at once")
	s.advance(20*time.Second, time.Second)
	g.Expect(s.count("web")).To(And(BeNumerically(">=", 2*targets), BeNumerically("<=", 4*targets)))
}

func TestChangedIntervalDoesNotRepeatARunningProbe(t *testing.T) {
	g := NewWithT(t)
	s := probed(t, Target{URL: "http://web/mcp", Interval: time.Hour})
	s.setScript(func(ctx context.Context, _ job) answer {
		s.hang(ctx.Done())
		return answer{}
	})
	s.advance(time.Hour, time.Minute)
	g.Expect(s.count("web")).To(Equal(2))
	s.Set(name("web"), Target{URL: "http://web/mcp", Interval: 10 * time.Second})
	s.advance(30*time.Second, time.Second)
	g.Expect(s.count("web")).To(Equal(2))
}

// othersList is the script of a server whose replica a:1 fails, and whose others have three tools.
func othersList(fail func(context.Context) *Error) func(context.Context, job) answer {
	return func(ctx context.Context, j job) answer {
		if j.address == "a:1" {
			return answer{err: fail(ctx)}
		}
		return answer{server: Server{Name: "web", Capabilities: []string{"tools"}, Tools: 3}, listed: j.list}
	}
}

// The description of a server, and its contract, must not wait for a replica that fails.
func TestAnotherReplicaIsListedWhileTheFirstFails(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 4)
	s.setScript(othersList(func(context.Context) *Error { return &Error{Kind: Refused} }))
	s.Set(name("web"), Target{URL: "http://web/mcp", Addresses: []string{"a:1", "b:1"}, Interval: time.Minute})
	start(t, s.Prober)
	s.settle()
	g.Expect(s.result("web").Server.Tools).To(Equal(NotCounted))
	s.advance(2*time.Minute, time.Second)
	g.Expect(s.result("web").Server).To(Equal(&Server{Name: "web", Capabilities: []string{"tools"}, Tools: 3}))
}

// Otherwise the server would never be listed again.
func TestAnotherReplicaIsListedAfterTheOneThatListsIsRemoved(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 4)
	s.setScript(othersList(func(ctx context.Context) *Error {
		s.hang(ctx.Done())
		return &Error{Kind: Timeout}
	}))
	s.Set(name("web"), Target{URL: "http://web/mcp", Addresses: []string{"a:1", "b:1"}, Interval: time.Minute})
	start(t, s.Prober)
	s.settle()
	g.Expect(s.result("web").Server.Tools).To(Equal(NotCounted))

	s.Set(name("web"), Target{URL: "http://web/mcp", Addresses: []string{"b:1"}, Interval: time.Minute})
	s.settle()
	s.advance(2*time.Minute, time.Second)

	g.Expect(s.result("web").Server).To(Equal(&Server{Name: "web", Capabilities: []string{"tools"}, Tools: 3}))
}

// Whatever ends a probe that was to list the server, the next one can.
func TestEndOfAProbeLetsTheNextOneList(t *testing.T) {
	for how, end := range map[string]func(*member){
		"it was recorded":        func(*member) {},
		"its replica is removed": func(m *member) { m.removed = true },
		"it is to be repeated":   func(m *member) { m.restart = true },
		"it was displaced":       func(m *member) { m.displaced = true },
	} {
		t.Run(how, func(t *testing.T) {
			g := NewWithT(t)
			p := newProber(t, Options{})
			p.Set(name("web"), Target{URL: "http://web/mcp"})
			now := p.options.Clock.Now()
			p.queue.promote(now)
			m := p.queue.take()
			m.cancel = func() {}
			j := p.job(m, now)
			g.Expect(j.full).To(BeTrue())
			g.Expect(p.job(m, now).full).To(BeFalse(), "one at a time")
			end(m)

			p.finish(t.Context(), m, j, answer{err: &Error{Kind: Timeout}})

			g.Expect(p.job(m, now).full).To(BeTrue())
			g.Expect(m.restart).To(BeFalse(), "it is repeated once")
		})
	}
}

func TestEndOfAnotherProbeDoesNotLetTheNextOneList(t *testing.T) {
	g := NewWithT(t)
	p := newProber(t, Options{})
	p.Set(name("web"), Target{URL: "http://web/mcp", Addresses: []string{"a:1", "b:1"}})
	now := p.options.Clock.Now()
	p.queue.promote(now)
	a, b := p.queue.take(), p.queue.take()
	b.cancel = func() {}
	g.Expect(p.job(a, now).full).To(BeTrue())
	p.finish(t.Context(), b, p.job(b, now), answer{})
	g.Expect(p.job(a, now).full).To(BeFalse())
}

// ended has probed a replica for some time. A probe that is displaced was to end for another one.
func ended(ctx context.Context, t *testing.T, takes time.Duration, displaced bool, a answer) (*Prober, *member) {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Now())
	p := newProber(t, Options{Clock: clock})
	p.Set(name("web"), Target{URL: "http://web/mcp", Interval: time.Minute})
	now := clock.Now()
	p.queue.promote(now)
	m := p.queue.take()
	m.started, m.cancel, m.displaced = now, func() {}, displaced
	j := p.job(m, now)
	clock.Step(takes)
	p.finish(ctx, m, j, a)
	return p, m
}

func TestErrorOfAProbeThatTheProberEndsIsNotThatOfTheServer(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	failed := answer{err: &Error{Kind: Refused}}
	for how, test := range map[string]struct {
		ctx       context.Context
		displaced bool
		answer    answer
		then      history
		waiting   int
	}{
		"failed":                   {t.Context(), false, failed, history{state: Unknown, failures: 1, err: failed.err}, 1},
		"displaced":                {t.Context(), true, failed, history{state: Unknown}, 1},
		"displaced, but succeeded": {t.Context(), true, answer{}, history{state: Answering}, 1},
		"the manager stops":        {stopped, false, failed, history{state: Unknown}, 0},
	} {
		t.Run(how, func(t *testing.T) {
			g := NewWithT(t)
			p, m := ended(test.ctx, t, 0, test.displaced, test.answer)
			g.Expect(m.history).To(Equal(test.then))
			g.Expect(p.queue.waiting).To(HaveLen(test.waiting))
			g.Expect(m.displaced).To(BeFalse())
		})
	}
}

// A slow probe would hold a slot that others need, and the slots of the slow lane are few.
func TestProbesThatTakeASecondAreSlow(t *testing.T) {
	for how, test := range map[string]struct {
		takes time.Duration
		err   *Error
		then  bool
	}{
		"almost a second":  {promptLimit - 1, nil, false},
		"a second":         {promptLimit, nil, true},
		"refused":          {0, &Error{Kind: Refused}, false},
		"refused slowly":   {promptLimit, &Error{Kind: Refused}, true},
		"a short timeout":  {promptLimit / 2, &Error{Kind: Timeout}, true},
		"with its retries": {promptLimit + 1, &Error{Kind: Timeout}, true},
	} {
		t.Run(how, func(t *testing.T) {
			_, m := ended(t.Context(), t, test.takes, false, answer{err: test.err})
			NewWithT(t).Expect(m.slow).To(Equal(test.then))
		})
	}
}

// The lists of another server took the slot of the namespace, which is no failure of this one.
func TestListThatIsPostponedIsReadHalfAnIntervalLater(t *testing.T) {
	g := NewWithT(t)
	p, m := ended(t.Context(), t, 0, false, answer{})
	g.Expect(m.entry.listSchedule).To(Equal(listSchedule{next: p.options.Clock.Now().Add(30 * time.Second)}))
}

func TestSchedulerIsWokenForWhatIsDueBeforeItsTimer(t *testing.T) {
	for how, test := range map[string]struct {
		timer   time.Duration
		backlog int
		then    bool
	}{
		"nothing":                 {timer: time.Second},
		"the probe of the member": {timer: time.Hour, then: true},
		"a replica that waits":    {timer: time.Second, backlog: 1, then: true},
	} {
		t.Run(how, func(t *testing.T) {
			g := NewWithT(t)
			p := newProber(t, Options{Clock: clocktesting.NewFakeClock(time.Now())})
			now := p.options.Clock.Now()
			p.Set(name("web"), Target{URL: "http://web/mcp"})
			p.queue.promote(now)
			m := p.queue.take()
			dueIn(p.queue, "other", test.backlog, false, now)
			p.queue.promote(now)
			p.nextWake = now.Add(test.timer)
			m.started, m.cancel = now, func() {}
			j := p.job(m, now)
			// A change of the result would wake the scheduler, too.
			m.history = history{state: Failing, failures: 5, err: &Error{Kind: Refused}}
			p.updateState(m.entry)
			<-p.wake

			p.finish(t.Context(), m, j, answer{err: &Error{Kind: Refused}})

			g.Expect(len(p.wake) > 0).To(Equal(test.then))
		})
	}
}

func TestSchedulerWaitsUntilTheNextProbe(t *testing.T) {
	for how, test := range map[string]struct {
		due  []time.Duration
		then time.Duration
	}{
		"none":            {nil, time.Hour},
		"one":             {[]time.Duration{time.Minute, 2 * time.Minute}, time.Minute},
		"one in a moment": {[]time.Duration{time.Millisecond}, batchWindow},
	} {
		t.Run(how, func(t *testing.T) {
			g := NewWithT(t)
			p := newProber(t, Options{Clock: clocktesting.NewFakeClock(time.Now())})
			now := p.options.Clock.Now()
			for _, due := range test.due {
				dueIn(p.queue, "default", 1, false, now.Add(due))
			}
			g.Expect(p.dispatch(t.Context())).To(Equal(test.then))
			g.Expect(p.nextWake).To(Equal(now.Add(test.then)))
		})
	}
}

func TestProbesAreRepeatedByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		probes := make(chan struct{}, 100)
		p := newProber(t, Options{})
		p.probe = func(context.Context, job) answer {
			probes <- struct{}{}
			return answer{listed: true}
		}
		p.Set(name("web"), Target{URL: bubbled, Interval: 30 * time.Second})
		start(t, p)
		<-time.After(10 * time.Minute)
		g.Expect(len(probes)).To(BeNumerically("~", 20, 2))
	})
}

func TestNextProbesAreSpread(t *testing.T) {
	g := NewWithT(t)
	p := newProber(t, Options{})
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := &member{entry: &entry{target: Target{Interval: 100 * time.Second, Timeout: time.Second}}, history: history{state: Answering}}
	for random, waits := range map[float64][2]time.Duration{0: {10 * time.Second, 90 * time.Second}, 0.5: {55 * time.Second, 100 * time.Second}, 1: {100 * time.Second, 110 * time.Second}} {
		p.random = func() float64 { return random }
		g.Expect(p.nextProbe(m, true, now, now)).To(BeTemporally("~", now.Add(waits[0]), time.Millisecond), "after the first probe")
		g.Expect(p.nextProbe(m, false, now, now)).To(BeTemporally("~", now.Add(waits[1]), time.Millisecond), "after a later one")
	}
}

func TestNextProbeDependsOnTheLastOnes(t *testing.T) {
	const interval, timeout = 100 * time.Second, time.Second
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for how, test := range map[string]struct {
		member member
		first  bool
		random float64
		takes  time.Duration
		then   time.Duration
	}{
		"starting":                       {member: member{history: history{state: Unknown, failures: 1}}, then: 25 * time.Second},
		"starting without serving":       {member: member{unready: true, history: history{state: Failing, failures: 5}}, then: 25 * time.Second},
		"started without serving":        {member: member{unready: true, history: history{state: Answering}}, then: 90 * time.Second},
		"failing":                        {member: member{history: history{state: Failing, failures: 5}}, then: 90 * time.Second},
		"failing with a new credential":  {member: member{history: history{state: Failing, failures: 5}}, first: true, then: 90 * time.Second},
		"failed once":                    {member: member{history: history{state: Answering, failures: 1}, lastAnswer: now.Add(-interval)}, random: 1, then: interval - timeout - batchWindow},
		"failed once, long ago":          {member: member{history: history{state: Answering, failures: 1}, lastAnswer: now.Add(-3 * interval)}, then: 10 * time.Second},
		"failed soon after it succeeded": {member: member{history: history{state: Answering, failures: 1}, lastAnswer: now}, then: 90 * time.Second},
		"failed once, after a 401":       {member: member{history: history{state: Closed, failures: 1}, lastAnswer: now.Add(-interval)}, random: 1, then: interval - timeout - batchWindow},
		"takes almost an interval":       {member: member{history: history{state: Answering}}, takes: 95 * time.Second, then: 105 * time.Second},
	} {
		t.Run(how, func(t *testing.T) {
			p := newProber(t, Options{})
			p.random = func() float64 { return test.random }
			test.member.entry = &entry{target: Target{Interval: interval, Timeout: timeout}}
			NewWithT(t).Expect(p.nextProbe(&test.member, test.first, now, now.Add(test.takes))).To(BeTemporally("~", now.Add(test.then), time.Millisecond))
		})
	}
}

func TestRemovedReplicaIsNotProbedAgain(t *testing.T) {
	g := NewWithT(t)
	s := probed(t, Target{URL: "http://web/mcp", Addresses: []string{"a:1", "b:1"}})
	s.Set(name("web"), Target{URL: "http://web/mcp", Addresses: []string{"a:1"}})
	s.settle()
	before := s.count("web")
	s.advance(2*time.Minute, time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs[before:] {
		g.Expect(j.address).To(Equal("a:1"))
	}
}

func TestForgottenServersTakeNoMemory(t *testing.T) {
	g := NewWithT(t)
	p := newProber(t, Options{})
	for i := range 3 {
		p.Set(name(fmt.Sprint(i)), Target{URL: "http://web/mcp", Token: "1"})
		p.Set(name(fmt.Sprint(i)), Target{URL: "http://web/mcp", Token: "2"})
	}
	g.Expect(p.namespaces).To(HaveLen(1))
	for i := range 3 {
		p.Forget(name(fmt.Sprint(i)))
		p.Forget(name(fmt.Sprint(i)))
	}
	g.Expect(p.entries).To(BeEmpty())
	g.Expect(p.namespaces).To(BeEmpty())
	g.Expect(p.queue.waiting).To(BeEmpty())
	g.Expect(p.queue.waiting[:cap(p.queue.waiting)]).To(HaveEach(BeNil()), "they have credentials")
}

// A server that is upgraded in place may support a newer version.
func TestNewestVersionIsRequestedWithEachFullProbe(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 4)
	s.setScript(func(_ context.Context, j job) answer { return answer{listed: j.list, version: sessionVersion} })
	s.Set(name("web"), Target{URL: "http://web/mcp"})
	start(t, s.Prober)
	s.settle()
	s.advance(time.Hour, time.Second)
	full := 0
	for _, j := range s.jobs {
		if j.full {
			full++
			g.Expect(j.version).To(BeEmpty())
		} else {
			g.Expect(j.version).To(Equal(sessionVersion))
		}
	}
	g.Expect(full).To(BeNumerically(">", 1))
}

func TestNewServerIsProbedWhileNothingIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		p := newProber(t, Options{})
		p.probe = func(context.Context, job) answer { return answer{listed: true} }
		start(t, p)
		synctest.Wait()
		p.Set(name("web"), Target{URL: bubbled})
		synctest.Wait()
		result, _ := p.Result(name("web"))
		g.Expect(result.State).To(Equal(Answering))
	})
}

// Subscribers do not wait for the next probe.
func TestSubscribersAreNotifiedWhenAProbeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		const takes = 2 * time.Second
		notified := make(chan types.NamespacedName, 10)
		p := newProber(t, Options{Notify: func(key types.NamespacedName) { notified <- key }})
		p.random = func() float64 { return 1 }
		p.probe = func(_ context.Context, j job) answer {
			if j.timeout == takes {
				<-time.After(takes) // in a bubble, which takes no time
			}
			return answer{listed: true}
		}
		p.Set(name("prompt"), Target{URL: bubbled, Interval: 30 * time.Second})
		p.Set(name("slow"), Target{URL: bubbled, Interval: time.Hour, Timeout: takes})
		start(t, p)
		synctest.Wait()
		g.Expect(notified).To(Receive(Equal(name("prompt"))))
		g.Expect(notified).NotTo(Receive())

		<-time.After(takes)
		synctest.Wait()
		g.Expect(notified).To(Receive(Equal(name("slow"))))
	})
}

// The server behind another credential may offer something else, and speak another version.
func TestNewCredentialReadsTheServerAgain(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 4)
	tools := 3
	s.setScript(func(_ context.Context, j job) answer {
		return answer{server: Server{Capabilities: []string{"tools"}, Tools: tools}, version: sessionVersion, listed: j.list}
	})
	target := Target{URL: "http://web/mcp", Addresses: []string{"a:1", "b:1"}, Bearer: Credential("one")}
	s.Set(name("web"), target)
	start(t, s.Prober)
	s.settle()
	g.Expect(s.result("web").Server.Tools).To(Equal(3))

	tools = 4
	target.Bearer = Credential("two")
	s.Set(name("web"), target)
	s.settle()
	g.Expect(s.result("web").Server.Tools).To(Equal(4))
	for _, j := range s.jobs {
		g.Expect(j.version).To(BeEmpty(), j.address)
	}
}

func TestListsThatCouldNotBeReadAreReadAgainSoon(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 4)
	tools := func(number int, err *Error) func(context.Context, job) answer {
		return func(_ context.Context, j job) answer {
			if !j.list {
				return answer{server: Server{Capabilities: []string{"tools"}}}
			}
			return answer{server: Server{Capabilities: []string{"tools"}, Tools: number}, listed: true, listErr: err}
		}
	}
	s.setScript(tools(NotCounted, &Error{Kind: Timeout}))
	target := Target{URL: "http://web/mcp", Version: "1"}
	s.Set(name("web"), target)
	start(t, s.Prober)
	s.settle()
	g.Expect(s.result("web").ListErr).To(Equal(&Error{Kind: Timeout}))
	s.setScript(tools(3, nil))
	s.advance(2*time.Minute, time.Second)
	g.Expect(s.result("web")).To(And(HaveField("Server.Tools", 3), HaveField("ListErr", BeNil())))

	// Nor does a probe that fails count as one that has read them.
	s.setScript(fails(Refused))
	target.Version = "2"
	s.Set(name("web"), target)
	s.advance(30*time.Second, time.Second)
	s.setScript(tools(4, nil))
	s.advance(2*time.Minute, time.Second)
	g.Expect(s.result("web").Server.Tools).To(Equal(4))
}

func TestForgottenServerIsNotProbedAgainForAnotherCredential(t *testing.T) {
	g := NewWithT(t)
	s := newSimulation(t, 4)
	ends := make(chan struct{})
	s.setScript(func(context.Context, job) answer {
		<-ends
		return answer{}
	})
	s.Set(name("web"), Target{URL: "http://web/mcp"})
	start(t, s.Prober)
	g.Eventually(func() int { return s.count("web") }).WithTimeout(testTimeout).Should(Equal(1))
	s.Set(name("web"), Target{URL: "http://web/mcp", Bearer: Credential("x")})
	s.Forget(name("web"))
	close(ends)
	s.settle()
	s.advance(time.Minute, time.Second)
	g.Expect(s.count("web")).To(Equal(1))
}
