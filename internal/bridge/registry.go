package bridge

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
)

// begin opens a session, if there is room for one.
func (b *Bridge) begin() (*session, *failure) {
	if f := b.reserve(); f != nil {
		return nil, f
	}
	s := newSession(b)
	if err := s.run(); err != nil {
		b.release()
		s.log.Error(err, "Starting the server process failed")
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
	// It may have ended before it could be found.
	if over := s.ended(); over != nil {
		b.forget(s)
		return nil, over
	}
	return s, nil
}

// reserve takes one of the places for sessions.
func (b *Bridge) reserve() *failure {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.draining {
		return drainFailure()
	}
	if b.places >= b.opts.MaxSessions {
		return refused(reasonTooManySessions,
			fmt.Sprintf("this server has %d sessions, which is as many as it may have; try again later", b.opts.MaxSessions), 5)
	}
	b.places++
	return nil
}

// release gives a place back, once the child that held it has ended.
func (b *Bridge) release() {
	b.mu.Lock()
	b.places--
	b.mu.Unlock()
	b.nudge()
}

// nudge wakes the one who waits for the bridge to become empty.
func (b *Bridge) nudge() {
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

// tooLarge notes a message of a server that was beyond the limit.
func (b *Bridge) tooLarge(log logr.Logger, o *oversize) {
	b.metrics.dropped.WithLabelValues(reasonTooLarge).Inc()
	log.Info("Server sent a message beyond the limit", "bytes", o.bytes, "limit", b.opts.MaxMessageBytes, "method", o.method)
}

func (b *Bridge) largeFailure(o *oversize) *failure {
	return ended(reasonTooLarge, fmt.Sprintf("the message has %d bytes, the limit is %d", o.bytes, b.opts.MaxMessageBytes))
}

func drainFailure() *failure {
	return refused(reasonDraining, "this server is shutting down; connect again", 1)
}

// await waits until the condition holds or ctx ends, and says which.
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

// vacant reports that all children of sessions are gone.
func (b *Bridge) vacant() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.places == 0
}

// finished reports that no client waits for anything.
func (b *Bridge) finished() bool {
	return b.vacant() && b.shared.quiet()
}
