package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// shutdownGrace is the time to send completed responses.
const shutdownGrace = time.Second

// Listeners are the listeners of a bridge.
type Listeners struct {
	// MCP serves the MCP endpoint.
	MCP net.Listener
	// Admin serves /healthz, /readyz and /metrics.
	Admin net.Listener
	// Peer serves the requests that other replicas forward. It is nil without Options.Peers.
	Peer net.Listener
	// SkipCheck makes the bridge ready without a check of the command.
	SkipCheck bool
}

// Serve serves until ctx is done, then drains. It returns the error of Check or
// of a listener. Cancelling force while it drains ends all sessions immediately.
func (b *Bridge) Serve(ctx, force context.Context, l Listeners) error {
	if b.peers != nil && l.Peer == nil {
		b.Close()
		return errors.New("serving: there is no listener for other replicas")
	}
	servers, failed := b.listen(l)
	defer func() {
		for _, s := range servers {
			b.shutDown(s)
		}
	}()
	if err := b.prepare(ctx, l); err != nil {
		b.Close()
		return err
	}
	select {
	case err := <-failed:
		b.Close()
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
		if b.waitForSessions(force) {
			// No request is pending, so connections are closed before the children stop.
			// Otherwise stopping the children ends the requests with an error.
			for _, s := range servers {
				b.shutDown(s)
			}
		}
		b.Close()
		return nil
	}
}

// prepare makes the bridge ready.
func (b *Bridge) prepare(ctx context.Context, l Listeners) error {
	if !l.SkipCheck {
		if err := b.Check(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return nil // stopped before it was ready
	default:
	}
	b.MarkReady()
	b.opts.Log.Info("Ready", "path", b.opts.Path, "address", l.MCP.Addr().String(), "adminAddress", l.Admin.Addr().String())
	return nil
}

// listen starts the HTTP servers.
func (b *Bridge) listen(l Listeners) ([]*http.Server, <-chan error) {
	servers := []*http.Server{newServer(b.Handler(), b.opts.IOTimeout), newServer(b.AdminHandler(), b.opts.IOTimeout)}
	listeners := []net.Listener{l.MCP, l.Admin}
	if b.peers != nil {
		servers = append(servers, b.peers.Server(b.peerHandler()))
		listeners = append(listeners, b.peers.Listen(l.Peer))
	}
	failed := make(chan error, len(servers))
	for i, s := range servers {
		go func() {
			if err := s.Serve(listeners[i]); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		}()
	}
	return servers, failed
}

const (
	// keepAlive is how long an idle connection stays open.
	keepAlive = 2 * time.Minute
	// lastRequestTime is the time, while draining, for a last request on kept connections.
	lastRequestTime = 3 * time.Second
)

// newServer returns a server with a timeout to send a response. It begins with the request, so whatever writes later, such
// as a stream, sets a deadline of its own.
func newServer(h http.Handler, timeout time.Duration) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		WriteTimeout:      timeout,
		IdleTimeout:       keepAlive,
		MaxHeaderBytes:    64 << 10,
	}
}

// limitSending limits the time to send what net/http still has of a response when the handler returns.
func (b *Bridge) limitSending(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer b.setSendDeadline(w)
		next.ServeHTTP(w, r)
	})
}

// setSendDeadline gives a client IOTimeout to receive what is sent from now on. net/http removes the deadline at the end
// of the request.
func (b *Bridge) setSendDeadline(w http.ResponseWriter) {
	// Only writers in tests have no deadlines.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(b.opts.IOTimeout))
}

// shutDown sends completed responses, then closes all connections.
func (b *Bridge) shutDown(s *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), b.times.shutdown)
	defer cancel()
	if s.Shutdown(ctx) != nil {
		_ = s.Close()
	}
}
