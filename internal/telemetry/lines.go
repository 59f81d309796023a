package telemetry

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Kinds of lines, which are the values of the member audit.
const (
	lineStart   = "start"
	lineArrival = "arrival"
	lineRequest = "request"
	lineDropped = "dropped"
	lineEnd     = "end"
)

// origin is where a line comes from.
type origin struct {
	Server    string `json:"server"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	// Instance is the process, whose sequence numbers begin at 1.
	Instance string `json:"instance"`
}

// mark is a line about the process, not about a request.
type mark struct {
	Kind string    `json:"audit"`
	Time time.Time `json:"time"`
	// Sequence is the highest number that has been taken: all numbers up to it belong to requests.
	Sequence uint64 `json:"sequence"`
	// Dropped is how many lines of requests were not written so far.
	Dropped uint64 `json:"dropped,omitempty"`
	origin
}

// lines writes lines in the background. Numbers are taken for requests when they arrive, and a line tells of each number
// before the request is served. So whoever reads the lines knows of all requests, also of those whose own line is missing
// because the process was killed, or because lines were dropped while nobody read.
type lines struct {
	out     io.Writer
	origin  origin
	max     int
	maxWait time.Duration
	metrics *Metrics
	wake    chan struct{}
	done    chan struct{}
	// stalled is true while nobody reads. Then requests do not wait.
	stalled atomic.Bool

	mu sync.Mutex
	// next is the batch that is written next.
	next   *batch
	queued int
	// taken is the highest number that has been taken.
	taken          uint64
	dropped, told  uint64
	ending, closed bool
}

// batch are the lines of one write.
type batch struct {
	text []byte
	// count and size are those of the lines of requests.
	count, size int
	// arrivals is true if numbers were taken that no earlier batch tells of.
	arrivals bool
	// dropped is how many dropped lines the earlier batches tell of.
	dropped uint64
	// written is closed after the write, which may have failed.
	written chan struct{}
	failed  bool
}

func newBatch() *batch { return &batch{written: make(chan struct{})} }

func newLines(opts *Options) *lines {
	l := &lines{
		out: opts.Lines, max: opts.maxQueued, maxWait: opts.maxWait, metrics: opts.Metrics, next: newBatch(),
		origin: origin{Server: opts.Server, Namespace: opts.Namespace, Pod: opts.Pod, Instance: opts.instance},
		wake:   make(chan struct{}, 1), done: make(chan struct{}),
	}
	l.next.text = l.mark(lineStart, 0, 0)
	l.signal()
	go l.write()
	return l
}

// take returns the number of a request, and the batch that tells of it.
func (l *lines) take() (sequence uint64, in *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken++
	l.next.arrivals = true
	l.signal()
	return l.taken, l.next
}

// tell returns after a batch was written, or after maxWait.
func (l *lines) tell(in *batch) {
	if l.stalled.Load() {
		l.metrics.lines.WithLabelValues(resultUntold).Inc()
		return
	}
	select {
	case <-in.written:
		if in.failed {
			l.metrics.lines.WithLabelValues(resultUntold).Inc()
		}
	case <-time.After(l.maxWait):
		l.stalled.Store(true)
		l.metrics.lines.WithLabelValues(resultUntold).Inc()
	}
}

// add queues the line of a request, or drops it if the queue is full.
func (l *lines) add(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.queued+len(line) > l.max {
		l.dropped++
		l.metrics.lines.WithLabelValues(resultDropped).Inc()
		return
	}
	l.queued += len(line)
	l.next.text = append(append(l.next.text, line...), '\n')
	l.next.count++
	l.next.size += len(line)
	l.signal()
}

func (l *lines) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// write writes batches until the end.
func (l *lines) write() {
	defer close(l.done)
	for range l.wake {
		if l.writeBatch() {
			return
		}
	}
}

// writeBatch writes what is queued, and reports whether it was the last batch.
func (l *lines) writeBatch() (last bool) {
	b, last := l.takeBatch()
	n, err := l.out.Write(b.text)
	l.stalled.Store(false)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queued -= b.size
	if err != nil {
		l.dropped += uint64(b.count) //nolint:gosec // it is a length
		l.metrics.lines.WithLabelValues(resultDropped).Add(float64(b.count))
		b.failed = true
		l.told, l.next.arrivals = b.dropped, l.next.arrivals || b.arrivals // The next batch tells instead.
		if n > 0 && b.text[n-1] != '\n' {
			l.next.text = append([]byte{'\n'}, l.next.text...) // It ends the line that was written in part.
		}
	} else {
		l.metrics.lines.WithLabelValues(resultWritten).Add(float64(b.count))
	}
	close(b.written)
	return last
}

// takeBatch completes the next batch with the marks that it needs.
func (l *lines) takeBatch() (b *batch, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b = l.next
	b.dropped = l.told
	l.next = newBatch()
	if l.dropped > l.told {
		l.told = l.dropped
		b.text = append(b.text, l.mark(lineDropped, l.taken, l.dropped)...)
	}
	switch {
	case l.ending:
		l.closed, last = true, true
		b.text = append(b.text, l.mark(lineEnd, l.taken, l.dropped)...)
	case b.arrivals:
		b.text = append(b.text, l.mark(lineArrival, l.taken, 0)...)
	}
	return b, last
}

func (l *lines) mark(kind string, sequence, dropped uint64) []byte {
	text, err := json.Marshal(mark{Kind: kind, Time: time.Now().UTC(), Sequence: sequence, Dropped: dropped, origin: l.origin})
	if err != nil {
		return nil // No member can fail.
	}
	return append(text, '\n')
}

// close writes what is queued and the last line. It returns when that is done, or ctx is.
func (l *lines) close(ctx context.Context) error {
	l.mu.Lock()
	l.ending = true
	l.mu.Unlock()
	l.signal()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
