// Package pipetest is a network in memory, for tests in bubbles of testing/synctest: there, a timeout expires only when
// nothing else can happen, and sockets of the kernel would keep it from expiring.
package pipetest

import (
	"context"
	"net"
	"sync"
)

// Listener accepts the connections that Dial opens. It is safe for concurrent use.
type Listener struct {
	dialed chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Listen returns a listener, which the caller closes.
func Listen() *Listener { return &Listener{dialed: make(chan net.Conn), closed: make(chan struct{})} }

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.dialed:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements [net.Listener].
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{} }

// Dial is for [net/http.Transport]: it opens a connection to this listener, whatever the address, and waits until it is
// accepted. It returns [net.ErrClosed] if the listener is closed.
func (l *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.dialed <- far:
		return near, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
