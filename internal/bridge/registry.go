package bridge

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
)

// begin starts a session, if the limit allows it.
func (b *Bridge) begin() (*session, *failure) {
	if f := b.reserve(); f != nil {
		return nil, f
	}
	s := newSession(b)
	if err := s.run(); err != nil {
		b.release()
		s.log.Error(err, "Failed to start the server process")
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

// reserve counts a session towards the limit.
func (b *Bridge) reserve() *failure {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.draining {
		return drainFailure()
	}
	if b.reserved >= b.opts.MaxSessions {
		return refused(reasonTooManySessions,
			fmt.Sprintf("the limit of %d sessions is reached; try again later", b.opts.MaxSessions), 5)
	}
	b.reserved++
	return nil
}

// release uncounts a session after its child has exited.
func (b *Bridge) release() {
	b.mu.Lock()
	b.reserved--
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

func drainFailure() *failure {
	return refused(reasonDraining, "this server is shutting down; connect again", 1)
}

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
	return b.reserved == 0
}

// finished reports whether no client has a session or a pending request.
func (b *Bridge) finished() bool {
	return b.noSessions() && b.shared.quiet()
}
