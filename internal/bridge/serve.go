package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// shutdownGrace is how long responses that are complete may take to go out.
const shutdownGrace = time.Second

// Listeners are where a bridge serves.
type Listeners struct {
	// MCP serves the protocol.
	MCP net.Listener
	// Admin serves health, readiness and metrics; without one, MCP does it too.
	Admin net.Listener
	// SkipCheck makes the bridge ready without having tried the command.
	SkipCheck bool
}

// Serve serves until ctx ends, then drains. It fails if the command does not
// pass the check, with the error of Check, or if a listener fails. Cancelling
// force while it drains ends the sessions at once.
func (b *Bridge) Serve(ctx, force context.Context, l Listeners) error {
	servers, failed := b.listen(l)
	defer func() {
		for _, s := range servers {
			shutDown(s)
		}
	}()
	if err := b.prepare(ctx, l.SkipCheck); err != nil {
		b.Close()
		return err
	}
	select {
	case err := <-failed:
		b.Close()
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
		if b.finish(force) {
			// Nobody waits for anything: connections close before the children end. Otherwise
			// it is the end of the children that ends the requests, in order.
			for _, s := range servers {
				shutDown(s)
			}
		}
		b.Close()
		return nil
	}
}

// prepare makes the bridge ready.
func (b *Bridge) prepare(ctx context.Context, skipCheck bool) error {
	if !skipCheck {
		if err := b.Check(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return nil // Asked to stop before it was ready.
	default:
	}
	b.MarkReady()
	b.opts.Log.Info("Ready", "path", b.opts.Path)
	return nil
}

// listen starts the HTTP servers.
func (b *Bridge) listen(l Listeners) ([]*http.Server, <-chan error) {
	failed := make(chan error, 2)
	mux := http.NewServeMux()
	mux.Handle(b.opts.Path, b.Handler())
	servers := []*http.Server{newServer(mux)}
	listeners := []net.Listener{l.MCP}
	if l.Admin == nil {
		mux.Handle("/", b.AdminHandler())
	} else {
		servers = append(servers, newServer(b.AdminHandler()))
		listeners = append(listeners, l.Admin)
	}
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
	// keepAlive is how long a connection without a request stays open.
	keepAlive = 2 * time.Minute
	// lastRequests is how long clients have, once the bridge drains, to be told to close.
	lastRequests = 3 * time.Second
)

func newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       keepAlive,
		MaxHeaderBytes:    64 << 10,
	}
}

// shutDown lets complete responses go out, and cuts the others off.
func shutDown(s *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	if s.Shutdown(ctx) != nil {
		_ = s.Close()
	}
}
