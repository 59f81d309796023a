package prober

import (
	"container/heap"
	"time"
)

// queue holds the replicas that wait for their next probe. Replicas that are not due are in waiting. Due
// replicas are in a lane, ordered by deadline, which is the due time for first probes and one interval
// later for repeated ones. So first probes have priority and do not starve others.
type queue struct {
	waiting line
	// prompt and slow are the lanes. slow is for replicas whose last probe timed out.
	prompt, slow   line
	free, freeSlow int
	sequence       uint64
}

func newQueue(concurrency int) *queue {
	return &queue{free: concurrency, freeSlow: max(1, concurrency/2)}
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
	if m.line != nil {
		heap.Remove(m.line, m.index)
	}
}

// promote moves due replicas to their lanes.
func (q *queue) promote(now time.Time) {
	for len(q.waiting) > 0 && !q.waiting[0].due.After(now) {
		m := q.waiting.pop()
		m.rank = m.due.Add(m.slack())
		q.lane(m).push(m)
	}
}

func (q *queue) lane(m *member) *line {
	if m.slow {
		return &q.slow
	}
	return &q.prompt
}

// take returns the next replica to probe and takes a slot; nil if none is due or no slot is free. release
// returns the slot.
func (q *queue) take() *member {
	if q.free == 0 {
		return nil
	}
	from := &q.prompt
	if len(q.slow) > 0 && q.freeSlow > 0 && (len(q.prompt) == 0 || q.slow[0].before(q.prompt[0])) {
		from = &q.slow
	}
	if len(*from) == 0 {
		return nil
	}
	m := from.pop()
	q.free--
	if m.inSlow = from == &q.slow; m.inSlow {
		q.freeSlow--
	}
	return m
}

func (q *queue) release(m *member) {
	q.free++
	if m.inSlow {
		q.freeSlow++
	}
}

// next is the earliest due time of the waiting replicas; false if none waits.
func (q *queue) next() (time.Time, bool) {
	if len(q.waiting) == 0 {
		return time.Time{}, false
	}
	return q.waiting[0].due, true
}

// hasBacklog reports whether due replicas wait for a slot.
func (q *queue) hasBacklog() bool {
	return len(q.prompt)+len(q.slow) > 0
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
