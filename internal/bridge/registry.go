package bridge

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"

	"github.com/fixpoint-dev/fixpoint/internal/peers"
)

// begin starts a session of a caller, if the limits allow it. If they do not, it ends an idle
// session, unless one is ending already, and waits for its child to exit.
func (b *Bridge) begin(ctx context.Context, caller string) (*session, *failure) {
	evicted, f := b.reserve(caller)
	if f != nil {
		return nil, f
	}
	if evicted != nil {
		evicted.end(ended(reasonEvicted, "the session was idle, and ended to make room for another one"))
		select {
		case <-evicted.stopped:
		case <-ctx.Done():
			go func() { // Close waits for the place
				<-evicted.stopped
				b.release(caller)
			}()
			return nil, ended(reasonClientLeft, "the client disconnected")
		}
	}
	s, err := b.startSession(caller)
	if err != nil {
		b.release(caller)
		b.opts.Log.Error(err, "Failed to start the server process")
		return nil, refused(reasonStartFailed, "the MCP server process could not be started", 5)
	}
	b.mu.Lock()
	b.sessions[s.id] = s
	draining := b.draining
	b.mu.Unlock()
	b.metrics.started.Inc()
	b.metrics.sessions.Inc()
	if draining {
		s.end(drainFailure())
	}
	// It may have ended before it was registered.
	if over := s.ended(); over != nil {
		b.forget(s)
		return nil, over
	}
	return s, nil
}

// startSession starts the child of a new session.
func (b *Bridge) startSession(caller string) (*session, error) {
	s, err := newSession(b, caller)
	if err != nil {
		return nil, err
	}
	return s, s.run()
}

// reserve counts a session towards the limits. If they are reached, it returns the session whose place the
// new one gets.
func (b *Bridge) reserve(caller string) (*session, *failure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.draining {
		return nil, drainFailure()
	}
	full := b.admission.full(caller)
	if full == nil {
		b.admission.add(caller)
		return nil, nil
	}
	sessions := make([]*session, 0, len(b.sessions))
	residents := make([]resident, 0, len(b.sessions))
	for s := range b.stopping {
		if !s.evicted {
			sessions = append(sessions, s)
			residents = append(residents, resident{caller: s.caller, stopping: true})
		}
	}
	for _, s := range b.sessions {
		// The place of one that ended before it was registered may be free already.
		if !s.evicted && s.ended() == nil {
			sessions = append(sessions, s)
			residents = append(residents, s.resident())
		}
	}
	chosen := b.admission.victim(residents, caller)
	if chosen < 0 {
		return nil, full
	}
	s := sessions[chosen]
	s.evicted = true
	b.admission.remove(s.caller)
	b.admission.add(caller)
	return s, nil
}

// stopped gives the place of a session free after its child has exited, unless another session has it.
func (b *Bridge) stopped(s *session) {
	b.mu.Lock()
	delete(b.stopping, s)
	evicted := s.evicted
	b.mu.Unlock()
	close(s.stopped)
	if !evicted {
		b.release(s.caller)
	}
}

// release uncounts a session.
func (b *Bridge) release(caller string) {
	b.mu.Lock()
	b.admission.remove(caller)
	b.mu.Unlock()
	b.signalChange()
}

// signalChange wakes await.
func (b *Bridge) signalChange() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

func (b *Bridge) lookup(id string) *session {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sessions[id]
}

// retire is called when a session has ended, before its child is stopped.
func (b *Bridge) retire(s *session) {
	b.mu.Lock()
	b.stopping[s] = struct{}{}
	b.mu.Unlock()
	b.forget(s)
}

func (b *Bridge) forget(s *session) {
	b.mu.Lock()
	_, ok := b.sessions[s.id]
	delete(b.sessions, s.id)
	b.mu.Unlock()
	if ok {
		b.metrics.sessions.Dec()
	}
}

func (b *Bridge) all() []*session {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]*session, 0, len(b.sessions))
	for _, s := range b.sessions {
		all = append(all, s)
	}
	return all
}

// tooLarge records a message of a server that exceeds the limit.
func (b *Bridge) tooLarge(log logr.Logger, o *oversize) {
	b.metrics.dropped.WithLabelValues(reasonTooLarge).Inc()
	log.Info("Server sent a message that exceeds the limit", "bytes", o.bytes, "limit", b.opts.MaxMessageBytes, "method", o.method)
}

func (b *Bridge) largeFailure(o *oversize) *failure {
	return ended(reasonTooLarge, fmt.Sprintf("the message has %d bytes, which exceeds the limit of %d", o.bytes, b.opts.MaxMessageBytes))
}

func drainFailure() *failure { return peers.Draining() }

// await waits until the condition holds (true) or ctx is done (false).
func (b *Bridge) await(ctx context.Context, condition func() bool) bool {
	for {
		if condition() {
			return true
		}
		select {
		case <-b.changed:
		case <-ctx.Done():
			return false
		}
	}
}

// noSessions reports whether all children of sessions have exited.
func (b *Bridge) noSessions() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.admission.total == 0
}

// finished reports whether no client has a session or a pending request.
func (b *Bridge) finished() bool {
	return b.noSessions() && b.shared.pending() == 0 && b.peers.Quiet()
}
