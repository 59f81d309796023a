package lease

import (
	"context"
	"sync"
	"time"
)

// A renewal proves the Lease for nine tenths of its duration. The rest is for clocks that do not run
// at the same rate, and for what a write needs to arrive.
const (
	provenShare = 9
	ofShares    = 10
)

// Guard knows whether this replica is provably the leader, and lets writes pass only then. It is safe
// for concurrent use.
type Guard struct {
	duration time.Duration
	metrics  *Metrics
	now      func() instant

	mu sync.Mutex
	// sent is when the last successful renewal was sent, if there was one.
	sent    instant
	elected bool
	// over is why this replica will never be the leader again.
	over Reason
	// expiry breaks off what is under way when the proof ends.
	expiry *time.Timer
	writes map[*write]struct{}
	// idle is closed while no write is under way.
	idle chan struct{}
	// connections are those over which writes go.
	connections map[*connection]struct{}
	lost        chan struct{}
}

// New makes the guard of a Lease that others respect for a duration after each renewal. It counts in
// metrics, which are optional.
func New(duration time.Duration, metrics *Metrics) *Guard {
	idle := make(chan struct{})
	close(idle)
	return &Guard{
		// The Lease says it in whole seconds.
		duration:    duration.Truncate(time.Second),
		metrics:     metrics,
		now:         clockSince(time.Now()),
		writes:      map[*write]struct{}{},
		idle:        idle,
		connections: map[*connection]struct{}{},
		lost:        make(chan struct{}),
	}
}

// instant is a moment by two clocks. The monotonic one counts while a process is stopped, but not
// while a machine sleeps; the wall clock shows that afterwards, and may be set.
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

// since is by the clock that says more.
func (i instant) since(earlier instant) time.Duration {
	return max(i.running-earlier.running, i.wall.Sub(earlier.wall))
}

// Check returns nil while this replica is provably the leader, and else an [Error].
func (g *Guard) Check() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if reason := g.judge(); reason != "" {
		return &Error{Reason: reason}
	}
	return nil
}

// judge says why a write may not begin; empty if it may. The caller holds g.mu.
func (g *Guard) judge() Reason {
	if g.over != "" {
		return g.over
	}
	return g.judgeProof()
}

// judgeProof says why nothing may be sent at all, be it of a write that has begun before.
func (g *Guard) judgeProof() Reason {
	switch {
	case g.over == Lost:
		return Lost
	case !g.elected:
		return NotElected
	case g.remaining() <= 0:
		return Unproven
	default:
		return ""
	}
}

// remaining is how long the last renewal still proves the Lease.
func (g *Guard) remaining() time.Duration {
	return g.duration*provenShare/ofShares - g.now().since(g.sent)
}

// Held says whether this replica is provably the leader.
func (g *Guard) Held() bool { return g.Check() == nil }

// Lost is closed when another replica is seen to have the Lease that was this one's. There is no way
// back: the process should end.
func (g *Guard) Lost() <-chan struct{} { return g.lost }

// Overdue is how long ago the proof of a leader that has neither lost nor given up the Lease ended;
// 0 for everybody else. By rights the election is over before.
func (g *Guard) Overdue() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.elected || g.over != "" {
		return 0
	}
	return max(0, -g.remaining())
}

// renewed notes a successful renewal that was sent at an instant.
func (g *Guard) renewed(sent instant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sent, g.elected = sent, true
	if g.expiry != nil {
		g.expiry.Stop()
	}
	g.expiry = time.AfterFunc(max(0, g.remaining()), g.expire)
	g.metrics.held(g.judge() == "")
}

// expire breaks off what is under way, unless there was a renewal meanwhile.
func (g *Guard) expire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.remaining() > 0 {
		return // the renewal has a timer of its own
	}
	g.breakOff(Unproven)
}

// lose is for a leader that finds another in its place.
func (g *Guard) lose() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over == Lost {
		return
	}
	g.over = Lost
	g.breakOff(Lost)
	close(g.lost)
}

// breakOff ends all writes and cuts their connections. The caller holds g.mu.
func (g *Guard) breakOff(why Reason) {
	g.metrics.held(false)
	for w := range g.writes {
		w.cancel(&Error{Reason: why, Sent: true})
	}
	for c := range g.connections {
		_ = c.Conn.Close() // whoever uses it closes it once more
	}
}

// Close ends everything at once, for good: it is for the end of the manager.
func (g *Guard) Close() {
	g.GiveUp()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.breakOff(g.over)
}

// GiveUp lets no further write begin. What is under way goes on for as long as the proof lasts.
func (g *Guard) GiveUp() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over == "" {
		g.over = GivenUp
		g.metrics.held(false)
	}
}

// drain waits until no write is under way.
func (g *Guard) drain(ctx context.Context) error {
	g.mu.Lock()
	idle := g.idle
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// write is one that is under way.
type write struct {
	guard  *Guard
	cancel context.CancelCauseFunc
}

// begin lets a write begin, or refuses it. The context that it returns is for the write alone: it
// does not end with the caller's, so that a write whose caller has been told to stop still has an
// outcome, but it ends at the caller's deadline, and with the proof.
func (g *Guard) begin(ctx context.Context) (context.Context, *write, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if refusal := refusedBefore(ctx); refusal != nil {
		return nil, nil, refusal
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if reason := g.judge(); reason != "" {
		return nil, nil, g.refuse(ctx, &Error{Reason: reason})
	}
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	w := &write{guard: g, cancel: cancel}
	if deadline, ok := ctx.Deadline(); ok {
		var stop context.CancelFunc
		own, stop = context.WithDeadline(own, deadline)
		w.cancel = func(cause error) {
			cancel(cause)
			stop()
		}
	}
	if len(g.writes) == 0 {
		g.idle = make(chan struct{})
	}
	g.writes[w] = struct{}{}
	return own, w, nil
}

// end is called when the outcome of the write is known, and returns it.
func (g *Guard) end(ctx context.Context, own context.Context, w *write, err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.writes, w)
	if len(g.writes) == 0 {
		close(g.idle)
	}
	if err == nil {
		return nil
	}
	if refusal, ok := Refused(context.Cause(own)); ok {
		return g.refuse(ctx, refusal)
	}
	if refusal, ok := Refused(err); ok {
		return g.refuse(ctx, refusal)
	}
	// A connection that was refused its bytes shows it by all sorts of errors.
	if reason := g.judgeProof(); reason != "" {
		return g.refuse(ctx, &Error{Reason: reason, Sent: true})
	}
	return err
}

// refuse counts a refusal, and lets the pass know.
func (g *Guard) refuse(ctx context.Context, refusal *Error) error {
	g.metrics.refused(refusal.Reason)
	tellPass(ctx, refusal)
	return refusal
}
