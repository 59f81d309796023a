package authproxy

import (
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// idleServing is how long net/http waits for the next request of a client, with the stack and the buffers of the last.
	idleServing = 100 * time.Millisecond
	// keepAlive is how long an idle connection of a client stays open.
	keepAlive = 2 * time.Minute
	// sendTimeout is how long a client may take to receive what one write sends.
	sendTimeout = 30 * time.Second
)

// idleConnections keep the connections of clients that send no request at the moment. net/http closes such a connection
// after [http.Server.IdleTimeout]; here it stays open, and is accepted again when the next request arrives. A client has
// many connections that are idle most of the time, and here each needs one small goroutine.
type idleConnections struct {
	address net.Addr
	// resumed are the connections with another request.
	resumed chan net.Conn
	done    chan struct{}

	mu     sync.Mutex
	closed bool
	parked map[net.Conn]struct{}
}

// keepIdle makes a server keep idle connections, and returns the listeners that it must serve.
func keepIdle(s *http.Server, l net.Listener) []net.Listener {
	idle := &idleConnections{address: l.Addr(), resumed: make(chan net.Conn), done: make(chan struct{}), parked: map[net.Conn]struct{}{}}
	s.IdleTimeout = idleServing
	s.ConnState = func(c net.Conn, state http.ConnState) {
		if c, ok := c.(*clientConn); ok {
			c.isIdle.Store(state == http.StateIdle)
		}
	}
	return []net.Listener{&clientListener{Listener: l, idle: idle}, idle}
}

// clientListener accepts connections that can be kept.
type clientListener struct {
	net.Listener
	idle *idleConnections
}

// Accept implements net.Listener.
func (l *clientListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &clientConn{Conn: conn, idle: l.idle}, nil
}

// clientConn is a connection while net/http serves it.
type clientConn struct {
	net.Conn
	idle *idleConnections
	// begin is the first byte of the next request, which has been read.
	begin []byte
	// isIdle is true between two requests.
	isIdle atomic.Bool
	// buffer is the size of the buffer of net/http, which is free between requests, unless there is a part of one.
	buffer int
	// isUnused is true if the last read ended without a byte.
	isUnused atomic.Bool
	// hasDeadline is true while a handler limits the time of its writes.
	hasDeadline atomic.Bool
}

func (c *clientConn) Read(p []byte) (int, error) {
	if c.buffer == 0 {
		c.buffer = len(p)
	}
	if len(c.begin) > 0 {
		n := copy(p, c.begin)
		c.begin = c.begin[n:]
		return n, nil
	}
	n, err := c.Conn.Read(p)
	if n == 0 && isTimeout(err) && c.isIdle.Load() {
		if len(p) == c.buffer {
			c.isUnused.Store(true)
			return 0, err
		}
		// The next request has begun, and may take its time.
		_ = c.SetReadDeadline(time.Now().Add(keepAlive))
		n, err = c.Conn.Read(p)
	}
	return n, err
}

// Write implements net.Conn. A client that does not read loses its connection. A limit for the response would end streams.
func (c *clientConn) Write(p []byte) (int, error) {
	if !c.hasDeadline.Load() {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(sendTimeout))
	}
	return c.Conn.Write(p)
}

// SetWriteDeadline implements net.Conn.
func (c *clientConn) SetWriteDeadline(deadline time.Time) error {
	c.hasDeadline.Store(!deadline.IsZero())
	return c.Conn.SetWriteDeadline(deadline)
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error) //nolint:errorlint // connections do not wrap it
	return ok && timeout.Timeout()
}

// Close implements net.Conn. It is called when the connection has no request in time, and for other reasons.
func (c *clientConn) Close() error {
	if c.isUnused.Swap(false) && c.idle.park(c.Conn) {
		return nil
	}
	return c.Conn.Close()
}

// park keeps a connection. It returns false if the server shuts down.
func (i *idleConnections) park(conn net.Conn) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return false
	}
	i.parked[conn] = struct{}{}
	go i.wait(conn)
	return true
}

// wait waits for the next request.
func (i *idleConnections) wait(conn net.Conn) {
	begin := make([]byte, 1)
	err := conn.SetDeadline(time.Now().Add(keepAlive - idleServing))
	if err == nil {
		_, err = conn.Read(begin)
	}
	i.mu.Lock()
	delete(i.parked, conn)
	i.mu.Unlock()
	if err == nil {
		_ = conn.SetDeadline(time.Time{})
		select {
		case i.resumed <- &clientConn{Conn: conn, idle: i, begin: begin}:
			return
		case <-i.done:
		}
	}
	_ = conn.Close()
}

// Accept implements net.Listener.
func (i *idleConnections) Accept() (net.Conn, error) {
	select {
	case conn := <-i.resumed:
		return conn, nil
	case <-i.done:
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener.
func (i *idleConnections) Addr() net.Addr { return i.address }

// Close implements net.Listener.
func (i *idleConnections) Close() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return nil
	}
	i.closed = true
	close(i.done)
	for conn := range i.parked {
		_ = conn.Close()
	}
	return nil
}
