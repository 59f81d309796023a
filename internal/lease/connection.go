package lease

import (
	"context"
	"errors"
	"net"
)

// Dialer opens connections, as net.Dialer.DialContext does.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// Dial makes of a dialer one whose connections are for writes. Such a connection looks at the proof
// right before bytes leave the process, which is the last moment at which a process that was stopped
// can notice it. It is closed when the proof has ended. And however it is closed, by the end of the
// process too, it is reset, so that the kernel throws away what it has not delivered: without that, a
// request would arrive after a network has been mended, however late.
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

// Write implements [net.Conn].
func (c *connection) Write(b []byte) (int, error) {
	if reason := c.guard.judgeSending(); reason != "" {
		_ = c.Conn.Close() // whoever uses it closes it once more
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

func (g *Guard) judgeSending() Reason {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.judgeProof()
}
