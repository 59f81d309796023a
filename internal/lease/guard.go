package lease

import (
	"context"
	"sync"
	"time"
)

// A renewal proves the Lease for nine tenths of its duration. The rest allows for clock drift and for the
// latency of writes.
const (
	provenShare = 9
	ofShares    = 10
)

// Guard allows writes only while this replica is provably the leader. It is safe for concurrent use.
type Guard struct {
	duration time.Duration
	metrics  *Metrics
	now      func() instant

	mu sync.Mutex
	// sent is when the last successful renewal was sent.
	sent    instant
	elected bool
	// final is why this replica can never be the leader again; empty if it can.
	final  Reason
	writes map[*write]struct{}
	// waits are for the end of pending writes.
	waits map[*wait]struct{}
	// connections are the connections for writes.
	connections map[*connection]struct{}
	lost        chan struct{}
	// claims limit writes to namespaces; nil if they are not limited.
	claims *claims
}

// New returns the guard of a Lease with the given LeaseDuration. Metrics are optional.
func New(duration time.Duration, metrics *Metrics) *Guard {
	return &Guard{
		// The Lease stores whole seconds.
		duration:    duration.Truncate(time.Second),
		metrics:     metrics,
		now:         clockSince(time.Now()),
		writes:      map[*write]struct{}{},
		waits:       map[*wait]struct{}{},
		connections: map[*connection]struct{}{},
		lost:        make(chan struct{}),
	}
}

// instant is a time by two clocks. The monotonic clock advances while the process is stopped but not while
// the machine sleeps. The wall clock includes sleep, but may be adjusted.
type instant struct {
	running time.Duration
	wall    time.Time
}

func clockSince(start time.Time) func() instant {
	return func() instant {
		now := time.Now()
		return instant{running: now.Sub(start), wall: now.Round(0)}
	}
}

// since is the longer of the two elapsed times.
func (i instant) since(earlier instant) time.Duration {
	return max(i.running-earlier.running, i.wall.Sub(earlier.wall))
}

// Check returns nil while this replica is provably the leader, else an [Error].
func (g *Guard) Check() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if reason := g.refusal(); reason != "" {
		return &Error{Reason: reason}
	}
	return nil
}

// refusal is why a write must not start; empty if it may. The caller holds g.mu.
func (g *Guard) refusal() Reason {
	if g.final != "" {
		return g.final
	}
	return g.sendRefusal()
}

// writeRefusal is why the write must not start; empty if it may. The caller holds g.mu.
func (g *Guard) writeRefusal(w *write) Reason {
	if reason := g.refusal(); reason != "" {
		return reason
	}
	if !g.claims.permits(w, g.now()) {
		return NotClaimed
	}
	return ""
}

// sendRefusal is why no bytes may be sent, also of pending writes; empty if they may. The caller holds g.mu.
func (g *Guard) sendRefusal() Reason {
	switch {
	case g.final == Lost:
		return Lost
	case !g.elected:
		return NotElected
	case g.remaining() <= 0:
		return Unproven
	default:
		return ""
	}
}

// remaining is the time until the proof expires.
func (g *Guard) remaining() time.Duration {
	return g.duration*provenShare/ofShares - g.now().since(g.sent)
}

// Held reports whether this replica is provably the leader.
func (g *Guard) Held() bool { return g.Check() == nil }

// Lost is closed when another replica is observed to hold the Lease that this one held. The process should
// then exit.
func (g *Guard) Lost() <-chan struct{} { return g.lost }

// Overdue is the time since the proof of a leader expired that has neither lost nor released the Lease, else
// 0. Normally the leader election has ended the leadership before.
func (g *Guard) Overdue() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.elected || g.final != "" {
		return 0
	}
	return max(0, -g.remaining())
}

// renewed records a successful renewal and when it was sent.
func (g *Guard) renewed(sent instant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sent, g.elected = sent, true
	time.AfterFunc(g.remaining(), g.expire)
	g.metrics.held(g.refusal() == "")
}

// expire aborts pending writes, unless the Lease was renewed meanwhile.
func (g *Guard) expire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.remaining() > 0 {
		return // the renewal has a timer of its own
	}
	g.abortWrites(Unproven)
}

// lose records that another replica holds the Lease.
func (g *Guard) lose() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.final == Lost {
		return
	}
	g.final = Lost
	g.abortWrites(Lost)
	close(g.lost)
}

// abortWrites aborts all writes and closes their connections. The caller holds g.mu.
func (g *Guard) abortWrites(why Reason) {
	g.metrics.held(false)
	for w := range g.writes {
		w.cancel(&Error{Reason: why, Sent: true})
	}
	for c := range g.connections {
		_ = c.Conn.Close() // the user closes it again
	}
}

// Close aborts all writes permanently. Call it when the manager stops.
func (g *Guard) Close() {
	g.GiveUp()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.abortWrites(g.final)
}

// GiveUp refuses further writes. Pending writes continue until the proof expires.
func (g *Guard) GiveUp() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.final == "" {
		g.final = GivenUp
		g.metrics.held(false)
	}
}

// drain waits until no write is pending.
func (g *Guard) drain(ctx context.Context) error {
	return g.waitForWrites(ctx, func(*write) bool { return true })
}

// wait is for the end of the pending writes that it concerns.
type wait struct {
	concerns func(*write) bool
	over     chan struct{}
}

// waitForWrites waits until no write that it concerns is pending.
func (g *Guard) waitForWrites(ctx context.Context, concerns func(*write) bool) error {
	w := &wait{concerns: concerns, over: make(chan struct{})}
	g.mu.Lock()
	g.waits[w] = struct{}{}
	g.endWaits()
	g.mu.Unlock()
	select {
	case <-w.over:
		return nil
	case <-ctx.Done():
		g.mu.Lock()
		delete(g.waits, w)
		g.mu.Unlock()
		return context.Cause(ctx)
	}
}

// endWaits ends the waits for writes that have ended. The caller holds g.mu.
func (g *Guard) endWaits() {
	for w := range g.waits {
		if !g.isPending(w.concerns) {
			delete(g.waits, w)
			close(w.over)
		}
	}
}

func (g *Guard) isPending(concerns func(*write) bool) bool {
	for w := range g.writes {
		if concerns(w) {
			return true
		}
	}
	return false
}

// write is a pending write.
type write struct {
	cancel context.CancelCauseFunc
	// namespace is that of the reconcile that the write is part of, or else that of the object; empty if there is
	// none.
	namespace   string
	reconciling bool
}

// begin starts a write, or refuses it. The returned context is for the write only: it is not cancelled with
// the context of the caller, so that the outcome of a write is known also during shutdown, but it has the
// deadline of the caller and is cancelled when the proof expires. The namespace is that of the object, for a
// write that is not part of a reconcile.
func (g *Guard) begin(ctx context.Context, namespace string) (context.Context, *write, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if refusal := refusedBefore(ctx); refusal != nil {
		return nil, nil, refusal
	}
	w := &write{namespace: namespace}
	if current := stateOf(ctx); current != nil {
		w.namespace, w.reconciling = current.namespace, true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if reason := g.writeRefusal(w); reason != "" {
		return nil, nil, g.refuse(ctx, &Error{Reason: reason})
	}
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	w.cancel = cancel
	if deadline, ok := ctx.Deadline(); ok {
		var stop context.CancelFunc
		own, stop = context.WithDeadline(own, deadline)
		w.cancel = func(cause error) {
			cancel(cause)
			stop()
		}
	}
	g.writes[w] = struct{}{}
	return own, w, nil
}

// end finishes a write and returns its error.
func (g *Guard) end(ctx context.Context, own context.Context, w *write, err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.writes, w)
	g.endWaits()
	if err == nil {
		return nil
	}
	if refusal, ok := Refused(context.Cause(own)); ok {
		return g.refuse(ctx, refusal)
	}
	if refusal, ok := Refused(err); ok {
		return g.refuse(ctx, refusal)
	}
	// A connection that refuses bytes causes various errors.
	if reason := g.sendRefusal(); reason != "" {
		return g.refuse(ctx, &Error{Reason: reason, Sent: true})
	}
	return err
}

// refuse counts a refusal and records it in the reconcile.
func (g *Guard) refuse(ctx context.Context, refusal *Error) error {
	g.metrics.refused(refusal.Reason)
	recordRefusal(ctx, refusal)
	return refusal
}
