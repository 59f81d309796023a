package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// mishap is one fault of a simulation: it comes at a call that is so many mutating calls after the one
// before.
type mishap struct {
	after int
	sort  mishapSort
	// mode and downtime are of a crash, past of the manager that comes next: of each resource, how many
	// events it has not seen.
	mode     CrashMode
	downtime time.Duration
	past     map[string]int
	// failure chooses among the ways in which the call can fail.
	failure int
	// resource is whose watches are cut or held back.
	resource string
	// lasts is how long it goes on; 0 is for one call.
	lasts time.Duration
}

type mishapSort string

const (
	crash         mishapSort = "crash"
	staleCrash    mishapSort = "crash, then a stale cache"
	blindCrash    mishapSort = "crash, then lists and watches that fail"
	failOnce      mishapSort = "failing call"
	failForAWhile mishapSort = "failing calls for a while"
	cutStream     mishapSort = "watch cut"
	expiredStream mishapSort = "watch expired"
	holdStream    mishapSort = "watch held back"
	brokenServers mishapSort = "MCP servers that do not answer"
)

// likelihood of each sort, in parts.
var likelihood = []struct {
	sort  mishapSort
	parts int
}{
	{crash, 22}, {staleCrash, 18}, {blindCrash, 5}, {failOnce, 22}, {failForAWhile, 12}, {cutStream, 5}, {expiredStream, 4}, {holdStream, 9}, {brokenServers, 3},
}

func drawSort(random *rand.Rand) mishapSort {
	sum := 0
	for _, l := range likelihood {
		sum += l.parts
	}
	at := random.IntN(sum)
	for _, l := range likelihood {
		if at -= l.parts; at < 0 {
			return l.sort
		}
	}
	return crash
}

// troubled are the resources whose watches are troubled.
var troubled = []string{
	"appservices", "mcpservers", "securestorages", "configmaps", "services", "deployments", "deployments", "horizontalpodautoscalers",
	"poddisruptionbudgets", "ingresses", "secrets", "endpointslices", "networkpolicies", "serviceaccounts",
}

// newMishap draws a fault. Now and then it comes right after the one before.
func newMishap(random *rand.Rand) mishap {
	const (
		farthest = 22
		unseen   = 8
	)
	upTo := func(longest time.Duration) time.Duration {
		const shortest = 50 * time.Millisecond
		return shortest + time.Duration(random.Int64N(int64(longest/time.Millisecond)))*time.Millisecond
	}
	m := mishap{after: 1 + random.IntN(farthest), sort: drawSort(random)}
	if random.IntN(5) == 0 {
		m.after = 1
	}
	m.mode = CrashModes[random.IntN(len(CrashModes))]
	if random.IntN(2) == 0 {
		m.downtime = upTo(400 * time.Millisecond)
	}
	m.failure, m.resource = random.IntN(1000), troubled[random.IntN(len(troubled))]
	m.lasts = upTo(900 * time.Millisecond)
	if m.sort == failOnce {
		m.lasts = 0
	}
	m.past = map[string]int{}
	for range 1 + random.IntN(3) {
		m.past[troubled[random.IntN(len(troubled))]] = 1 + random.IntN(unseen)
	}
	return m
}

// String is such as "7 calls on: crash lost, down 120ms".
func (m mishap) String() string {
	text := fmt.Sprintf("%d calls on: %s", m.after, m.sort)
	switch m.sort {
	case crash, staleCrash, blindCrash:
		text += fmt.Sprintf(" (%s), down for %s", m.mode, m.downtime)
		if m.sort == staleCrash {
			text += fmt.Sprintf(", without the last events %v, for %s", m.past, m.lasts)
		}
		if m.sort == blindCrash {
			text += fmt.Sprintf(" of %s, for %s", m.resource, m.lasts)
		}
	case failOnce, failForAWhile:
		text += fmt.Sprintf(" (%d), for %s", m.failure, m.lasts)
	default:
		text += fmt.Sprintf(" of %s, for %s", m.resource, m.lasts)
	}
	return text
}

// storm is the plan of a simulation: its faults, one after the other, until they are over.
type storm struct {
	world *World
	began time.Time
	tell  func(string)

	mu      sync.Mutex
	mishaps []mishap
	seen    int
	over    bool
	// failing are the sorts of calls that fail for a while.
	failing []spell
	// next is what the manager begins with that comes after a crash.
	next  mishap
	until time.Time
	// met counts by sort.
	met map[mishapSort]int
	// delayed are what ends by itself, and not yet has.
	delayed sync.WaitGroup
}

// spell is a sort of call that fails for a while.
type spell struct {
	class   string
	failure Failure
	until   time.Time
}

// Decide implements [Plan].
func (s *storm) Decide(call Call) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return Fault{}
	}
	now := time.Now()
	for _, f := range s.failing {
		if f.class == call.Class() && now.Before(f.until) && f.failure.meets(call) {
			return f.failure.fault
		}
	}
	if call.Number == 0 || len(s.mishaps) == 0 {
		return Fault{}
	}
	if s.seen++; s.seen < s.mishaps[0].after {
		return Fault{}
	}
	m := s.mishaps[0]
	s.mishaps, s.seen = s.mishaps[1:], 0
	s.met[m.sort]++
	return s.strike(m, call, now)
}

// strike lets a fault happen at a call.
func (s *storm) strike(m mishap, call Call, now time.Time) Fault {
	text := fmt.Sprintf("%5d ms at %s: %s", now.Sub(s.began).Milliseconds(), call, strings.SplitN(m.String(), ": ", 2)[1])
	switch m.sort {
	case crash, staleCrash, blindCrash:
		s.next, s.until = m, now.Add(m.downtime)
		s.tell(text)
		return Fault{Crash: m.mode}
	case failOnce, failForAWhile:
		failure := m.failureOf(call)
		s.failing = append(s.failing, spell{call.Class(), failure, now.Add(m.lasts)})
		s.tell(text + " with " + failure.Name)
		return failure.fault
	case brokenServers:
		s.world.BreakServers(true)
		s.after(m.lasts, func() { s.world.BreakServers(false) })
	case holdStream:
		manager := s.world.manager(call.Manager)
		manager.Hold(m.resource)
		s.after(m.lasts, func() { manager.Release(m.resource) })
	case cutStream, expiredStream:
		manager := s.world.manager(call.Manager)
		const each = 80 * time.Millisecond
		for at := time.Duration(0); at < m.lasts; at += each {
			s.after(at, func() { manager.Cut(m.resource, m.sort == expiredStream) })
		}
	}
	s.tell(text)
	return Fault{}
}

// failureOf is the way in which a call fails, of those in which it can.
func (m mishap) failureOf(call Call) Failure {
	possible := slices.DeleteFunc(slices.Clone(Failures), func(f Failure) bool { return !f.meets(call) })
	return possible[m.failure%len(possible)]
}

// after does something a while later, and before the faults count as over.
func (s *storm) after(wait time.Duration, do func()) {
	s.delayed.Add(1)
	time.AfterFunc(wait, func() {
		defer s.delayed.Done()
		do()
	})
}

// isDown says whether it is too early for another manager.
func (s *storm) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.over && time.Now().Before(s.until)
}

// restart starts the manager that comes after a crash, as the fault has it.
func (s *storm) restart() (*Manager, error) {
	s.mu.Lock()
	m := s.next
	s.next = mishap{}
	over := s.over
	if m.sort == blindCrash && !over {
		until := time.Now().Add(m.lasts)
		for _, verb := range []string{"list", "watch"} {
			call := Call{Verb: verb, Resource: m.resource, Cached: true}
			s.failing = append(s.failing, spell{call.Class(), m.failureOf(call), until})
		}
	}
	s.mu.Unlock()
	if m.sort != staleCrash || over {
		return s.world.Start()
	}
	past := s.world.before(m.past)
	manager, err := s.world.StartInThePast(past)
	if err != nil {
		return nil, err
	}
	s.after(m.lasts, func() {
		for resource := range past {
			manager.Release(resource)
		}
	})
	return manager, nil
}

// before is the past in which a manager has not seen the last events of resources.
func (w *World) before(unseen map[string]int) Past {
	versions, past := w.Versions(), Past{}
	for _, v := range slices.Backward(versions) {
		resource := ResourceOf(v.Object.GetKind())
		if unseen[resource] == 0 {
			continue
		}
		past[resource] = v.Revision - 1
		unseen[resource]--
	}
	return past
}

// isSpent says whether all faults have come.
func (s *storm) isSpent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mishaps) == 0
}

// end ends all faults, and waits for what they have begun.
func (s *storm) end() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.delayed.Wait()
}

// manager is one by its number.
func (w *World) manager(number int) *Manager {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.managers[number-1]
}
