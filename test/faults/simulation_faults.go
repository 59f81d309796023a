package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// scheduledFault is one fault of a simulation. It occurs at a mutating call, counted from the previous fault.
type scheduledFault struct {
	after int
	kind  faultKind
	// mode and downtime describe a crash. stale is the number of events per resource that the caches of the next
	// manager lack.
	mode     CrashMode
	downtime time.Duration
	stale    map[string]int
	// failure selects among the failure modes that apply to the call.
	failure int
	// resource is the one whose watches are cut or held back.
	resource string
	// lasts is the duration of the fault; 0 means one call.
	lasts time.Duration
}

type faultKind string

const (
	crashOnly               faultKind = "crash"
	crashThenStaleCache     faultKind = "crash, then stale cache"
	crashThenFailingWatches faultKind = "crash, then failing lists and watches"
	failOnce                faultKind = "failing call"
	failForAWhile           faultKind = "failing calls"
	cutStream               faultKind = "watch cut"
	expiredStream           faultKind = "watch expired"
	holdStream              faultKind = "watch held back"
	failingMCPServers       faultKind = "failing MCP servers"
)

// faultWeights are the relative frequencies of the kinds.
var faultWeights = []struct {
	kind  faultKind
	parts int
}{
	{crashOnly, 22}, {crashThenStaleCache, 18}, {crashThenFailingWatches, 5}, {failOnce, 22}, {failForAWhile, 12}, {cutStream, 5}, {expiredStream, 4}, {holdStream, 9}, {failingMCPServers, 3},
}

func drawFaultKind(random *rand.Rand) faultKind {
	sum := 0
	for _, l := range faultWeights {
		sum += l.parts
	}
	at := random.IntN(sum)
	for _, l := range faultWeights {
		if at -= l.parts; at < 0 {
			return l.kind
		}
	}
	return crashOnly
}

// newScheduledFault draws a fault. Some occur right after the previous one.
func newScheduledFault(random *rand.Rand) scheduledFault {
	const (
		farthest = 22
		unseen   = 8
	)
	upTo := func(longest time.Duration) time.Duration {
		const shortest = 50 * time.Millisecond
		return shortest + time.Duration(random.Int64N(int64(longest/time.Millisecond)))*time.Millisecond
	}
	m := scheduledFault{after: 1 + random.IntN(farthest), kind: drawFaultKind(random)}
	if random.IntN(5) == 0 {
		m.after = 1
	}
	m.mode = CrashModes[random.IntN(len(CrashModes))]
	if random.IntN(2) == 0 {
		m.downtime = upTo(400 * time.Millisecond)
	}
	resources := WatchedResources()
	m.failure, m.resource = random.IntN(1000), resources[random.IntN(len(resources))]
	m.lasts = upTo(900 * time.Millisecond)
	if m.kind == failOnce {
		m.lasts = 0
	}
	m.stale = map[string]int{}
	for range 1 + random.IntN(3) {
		m.stale[resources[random.IntN(len(resources))]] = 1 + random.IntN(unseen)
	}
	return m
}

// String returns, for example, "after 7 calls: crash (lost), down for 120ms".
func (m scheduledFault) String() string {
	text := fmt.Sprintf("after %d calls: %s", m.after, m.kind)
	switch m.kind {
	case crashOnly, crashThenStaleCache, crashThenFailingWatches:
		text += fmt.Sprintf(" (%s), down for %s", m.mode, m.downtime)
		if m.kind == crashThenStaleCache {
			text += fmt.Sprintf(", cache without the last events %v for %s", m.stale, m.lasts)
		}
		if m.kind == crashThenFailingWatches {
			text += fmt.Sprintf(" of %s, for %s", m.resource, m.lasts)
		}
	case failOnce, failForAWhile:
		text += fmt.Sprintf(" (%d), for %s", m.failure, m.lasts)
	default:
		text += fmt.Sprintf(" of %s, for %s", m.resource, m.lasts)
	}
	return text
}

// faultSchedule is the plan that injects the faults of a simulation one after the other.
type faultSchedule struct {
	env    *Environment
	began  time.Time
	record func(string)

	mu      sync.Mutex
	pending []scheduledFault
	seen    int
	over    bool
	// failing lists the classes of calls that fail for a while.
	failing []failurePeriod
	// next describes how the manager after a crash starts.
	next  scheduledFault
	until time.Time
	// injected counts by kind.
	injected map[faultKind]int
	// delayed counts the faults that end by themselves and have not ended.
	delayed sync.WaitGroup
}

// failurePeriod is a class of calls that fails for a while.
type failurePeriod struct {
	class   string
	failure FailureMode
	until   time.Time
}

// Decide implements [Plan].
func (f *faultSchedule) Decide(call Call) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return Fault{}
	}
	now := time.Now()
	for _, period := range f.failing {
		if period.class == call.Class() && now.Before(period.until) && period.failure.appliesTo(call) {
			return period.failure.fault
		}
	}
	if call.Number == 0 || len(f.pending) == 0 {
		return Fault{}
	}
	if f.seen++; f.seen < f.pending[0].after {
		return Fault{}
	}
	m := f.pending[0]
	f.pending, f.seen = f.pending[1:], 0
	f.injected[m.kind]++
	return f.inject(m, call, now)
}

// inject applies a fault to a call.
func (f *faultSchedule) inject(m scheduledFault, call Call, now time.Time) Fault {
	text := fmt.Sprintf("%5d ms at %s: %s", now.Sub(f.began).Milliseconds(), call, strings.SplitN(m.String(), ": ", 2)[1])
	switch m.kind {
	case crashOnly, crashThenStaleCache, crashThenFailingWatches:
		f.next, f.until = m, now.Add(m.downtime)
		f.record(text)
		return Fault{Crash: m.mode}
	case failOnce, failForAWhile:
		failure := m.failureOf(call)
		f.failing = append(f.failing, failurePeriod{call.Class(), failure, now.Add(m.lasts)})
		f.record(text + " with " + failure.Name)
		return failure.fault
	case failingMCPServers:
		f.env.FailMCPServers(true)
		f.after(m.lasts, func() { f.env.FailMCPServers(false) })
	case holdStream:
		manager := f.env.manager(call.Manager)
		manager.HoldWatch(m.resource)
		f.after(m.lasts, func() { manager.ReleaseWatch(m.resource) })
	case cutStream, expiredStream:
		manager := f.env.manager(call.Manager)
		const each = 80 * time.Millisecond
		for at := time.Duration(0); at < m.lasts; at += each {
			f.after(at, func() { manager.CutWatch(m.resource, m.kind == expiredStream) })
		}
	}
	f.record(text)
	return Fault{}
}

// failureOf selects one of the failure modes that apply to the call.
func (m scheduledFault) failureOf(call Call) FailureMode {
	possible := slices.DeleteFunc(slices.Clone(FailureModes), func(f FailureMode) bool { return !f.appliesTo(call) })
	return possible[m.failure%len(possible)]
}

// after runs a function later. The schedule does not end before.
func (f *faultSchedule) after(wait time.Duration, do func()) {
	f.delayed.Add(1)
	time.AfterFunc(wait, func() {
		defer f.delayed.Done()
		do()
	})
}

// isDown reports whether the next manager must not start yet.
func (f *faultSchedule) isDown() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.over && time.Now().Before(f.until)
}

// restart starts the manager after a crash as the fault requires.
func (f *faultSchedule) restart() (*Manager, error) {
	f.mu.Lock()
	m := f.next
	f.next = scheduledFault{}
	over := f.over
	if m.kind == crashThenFailingWatches && !over {
		until := time.Now().Add(m.lasts)
		for _, verb := range []string{"list", "watch"} {
			call := Call{Verb: verb, Resource: m.resource, Cached: true}
			f.failing = append(f.failing, failurePeriod{call.Class(), m.failureOf(call), until})
		}
	}
	f.mu.Unlock()
	if m.kind != crashThenStaleCache || over {
		return f.env.Start()
	}
	stale := f.env.staleCacheBefore(m.stale)
	manager, err := f.env.StartWithStaleCache(stale)
	if err != nil {
		return nil, err
	}
	f.after(m.lasts, func() {
		for resource := range stale {
			manager.ReleaseWatch(resource)
		}
	})
	return manager, nil
}

// staleCacheBefore returns a cache that lacks the last events of resources.
func (env *Environment) staleCacheBefore(unseen map[string]int) StaleCache {
	versions, stale := env.Versions(), StaleCache{}
	for _, v := range slices.Backward(versions) {
		resource := ResourceOf(v.Object.GetKind())
		if unseen[resource] == 0 {
			continue
		}
		stale[resource] = v.Revision - 1
		unseen[resource]--
	}
	return stale
}

// allInjected reports whether every fault has occurred.
func (f *faultSchedule) allInjected() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pending) == 0
}

// end stops injecting faults and waits for those in progress.
func (f *faultSchedule) end() {
	f.mu.Lock()
	f.over = true
	f.mu.Unlock()
	f.delayed.Wait()
}

// manager returns a manager by its number.
func (env *Environment) manager(number int) *Manager {
	env.mu.Lock()
	defer env.mu.Unlock()
	return env.managers[number-1]
}
