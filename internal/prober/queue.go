package prober

import (
	"container/heap"
	"slices"
	"time"
)

// promptLimit is how long a probe may hold a slot of the prompt lane that another probe needs.
const promptLimit = time.Second

// queue holds the replicas that wait for their next probe, and the slots of the running probes. Replicas
// that are not due are in waiting, due ones are in a lane.
type queue struct {
	waiting line
	// slow is for probes that take longer than promptLimit, and for replicas whose last probe did. prompt
	// is for all others.
	prompt, slow *lane
	sequence     uint64
}

func newQueue(concurrency int) *queue {
	slow := max(1, concurrency/2)
	return &queue{prompt: newLane(max(1, concurrency-slow)), slow: newLane(slow)}
}

// add adds a replica that is due at m.due.
func (q *queue) add(m *member) {
	q.sequence++
	m.sequence = q.sequence
	m.rank = m.due
	q.waiting.push(m)
}

// remove removes a replica from the queue.
func (q *queue) remove(m *member) {
	if m.line == nil {
		return
	}
	heap.Remove(m.line, m.index)
	q.laneOf(m).clean(m.namespace())
}

// promote moves due replicas to their lanes.
func (q *queue) promote(now time.Time) {
	for len(q.waiting) > 0 && !q.waiting[0].due.After(now) {
		m := q.waiting.pop()
		m.rank = m.due.Add(m.slack())
		q.laneOf(m).share(m.namespace()).due.push(m)
	}
}

func (q *queue) laneOf(m *member) *lane {
	if m.slow {
		return q.slow
	}
	return q.prompt
}

// take returns the next replica to probe and takes a slot for it; nil if none is due or no slot is free.
// release returns the slot. No namespace may hold so many slots of the slow lane, which can be occupied for
// long, that none is left for another one.
func (q *queue) take() *member {
	if m := q.prompt.take(q.prompt.slots); m != nil {
		return m
	}
	return q.slow.take(q.slow.fairShare())
}

func (q *queue) release(m *member) { m.lane.release(m) }

// separate moves probes that run longer than promptLimit to the slow lane. It returns those that get no
// slot there, as far as replicas wait for their slots in the prompt lane: they are to be ended.
func (q *queue) separate(now time.Time) (displaced []*member) {
	needed := q.prompt.backlog() - q.prompt.free()
	var stuck []*member
	for _, m := range q.prompt.longest() {
		switch {
		case m.displaced:
			needed--
		case now.Sub(m.started) < promptLimit:
		case q.slow.accepts(m.namespace(), q.slow.fairShare()):
			q.prompt.release(m)
			q.slow.hold(m)
			needed--
		default:
			m.stuck = true
			stuck = append(stuck, m)
		}
	}
	return stuck[:max(0, min(needed, len(stuck)))]
}

// next is the earliest time when a replica becomes due or a probe is to be separated; false if there is
// none.
func (q *queue) next() (time.Time, bool) {
	var next time.Time
	if len(q.waiting) > 0 {
		next = q.waiting[0].due
	}
	for m := range q.prompt.running {
		// The end of another probe, or a backlog, runs the scheduler for the ones that are stuck.
		if at := m.started.Add(promptLimit); !m.stuck && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next, !next.IsZero()
}

// hasBacklog reports whether due replicas wait for a slot.
func (q *queue) hasBacklog() bool { return q.prompt.backlog()+q.slow.backlog() > 0 }

// lane is a number of slots that namespaces share. The slots go to the namespace that holds the fewest.
// Within a namespace, replicas are ordered by deadline, which is the due time for first probes and one
// interval later for repeated ones. So first probes have priority and do not starve others.
type lane struct {
	slots   int
	running map[*member]struct{}
	// shares are those of the namespaces with due replicas or running probes.
	shares map[string]*share
}

// share is what a namespace has in a lane.
type share struct {
	due     line
	running int
}

func newLane(slots int) *lane {
	return &lane{slots: slots, running: map[*member]struct{}{}, shares: map[string]*share{}}
}

func (l *lane) share(namespace string) *share {
	s := l.shares[namespace]
	if s == nil {
		s = &share{}
		l.shares[namespace] = s
	}
	return s
}

// clean forgets a namespace that has nothing in the lane.
func (l *lane) clean(namespace string) {
	if s := l.shares[namespace]; s != nil && len(s.due) == 0 && s.running == 0 {
		delete(l.shares, namespace)
	}
}

func (l *lane) free() int { return l.slots - len(l.running) }

func (l *lane) backlog() int {
	n := 0
	for _, s := range l.shares {
		n += len(s.due)
	}
	return n
}

// fairShare is the number of slots that each namespace may hold, so that as many are left for another one.
func (l *lane) fairShare() int { return max(1, l.slots/(len(l.shares)+1)) }

// accepts reports whether a namespace may take one more slot.
func (l *lane) accepts(namespace string, limit int) bool {
	s := l.shares[namespace]
	return l.free() > 0 && (s == nil || s.running < limit)
}

// take takes a slot for the next replica of the namespace with the fewest slots, if it has fewer than limit.
func (l *lane) take(limit int) *member {
	var next *share
	for namespace, s := range l.shares {
		if len(s.due) == 0 || !l.accepts(namespace, limit) {
			continue
		}
		if next == nil || s.running < next.running || s.running == next.running && s.due[0].before(next.due[0]) {
			next = s
		}
	}
	if next == nil {
		return nil
	}
	m := next.due.pop()
	l.hold(m)
	return m
}

func (l *lane) hold(m *member) {
	l.running[m] = struct{}{}
	l.share(m.namespace()).running++
	m.lane = l
}

func (l *lane) release(m *member) {
	delete(l.running, m)
	l.share(m.namespace()).running--
	l.clean(m.namespace())
	m.lane = nil
}

// longest returns the running probes, those of the namespace with the most slots first, and those that
// started first.
func (l *lane) longest() []*member {
	running := make([]*member, 0, len(l.running))
	for m := range l.running {
		running = append(running, m)
	}
	slices.SortFunc(running, func(a, b *member) int {
		if n := l.share(b.namespace()).running - l.share(a.namespace()).running; n != 0 {
			return n
		}
		return a.started.Compare(b.started)
	})
	return running
}

// line is a heap of replicas by rank. Each replica knows its index, so that it can be removed.
type line []*member

func (l *line) push(m *member) {
	m.line = l
	heap.Push(l, m)
}

func (l *line) pop() *member {
	m, _ := heap.Pop(l).(*member)
	return m
}

// Len implements heap.Interface.
func (l *line) Len() int { return len(*l) }

// Less implements heap.Interface.
func (l *line) Less(i, j int) bool { return (*l)[i].before((*l)[j]) }

// Swap implements heap.Interface.
func (l *line) Swap(i, j int) {
	s := *l
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

// Push implements heap.Interface.
func (l *line) Push(x any) {
	m, _ := x.(*member)
	m.index = len(*l)
	*l = append(*l, m)
}

// Pop implements heap.Interface.
func (l *line) Pop() any {
	s := *l
	m := s[len(s)-1]
	s[len(s)-1] = nil
	*l = s[:len(s)-1]
	m.line = nil
	return m
}
