package lease

import (
	"context"
	"errors"
	"net"
)

// Dialer opens connections, as net.Dialer.DialContext does.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// Dial wraps a dialer for connections that carry writes. Such a connection checks the proof immediately
// before bytes leave the process, so that a process that was stopped notices the expired proof. It is
// closed when the proof expires. Closing it, also by the exit of the process, resets it, so that the
// kernel discards unsent data. Otherwise a request could arrive after a network partition has healed.
func (g *Guard) Dial(dial Dialer) Dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		inner, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if tcp, ok := inner.(*net.TCPConn); ok {
			if err := tcp.SetLinger(0); err != nil {
				return nil, errors.Join(err, inner.Close())
			}
		}
		c := &connection{Conn: inner, guard: g}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.connections[c] = struct{}{}
		return c, nil
	}
}

type connection struct {
	net.Conn
	guard *Guard
}

func (c *connection) Write(b []byte) (int, error) {
	if reason := c.guard.checkSend(); reason != "" {
		_ = c.Conn.Close() // the user closes it again
		return 0, &Error{Reason: reason, Sent: true}
	}
	return c.Conn.Write(b)
}

// Close implements [net.Conn].
func (c *connection) Close() error {
	c.guard.mu.Lock()
	delete(c.guard.connections, c)
	c.guard.mu.Unlock()
	return c.Conn.Close()
}

func (g *Guard) checkSend() Reason {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sendRefusal()
}
