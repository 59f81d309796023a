package ha_test

import (
	"errors"
	"net"
	"sync"
	"syscall"
)

// link is the way of one replica to the API server: a TCP connection that can be cut as a network is.
// What a side has sent meanwhile arrives when the link is restored, as a kernel would send it again,
// unless that side has reset the connection: then its kernel has thrown it away.
type link struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	changed *sync.Cond
	// up is the way to the API server, down the one from it.
	up, down, closed bool
	conns            map[net.Conn]struct{}
}

func newLink(target string) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{listener: listener, target: target, up: true, down: true, conns: map[net.Conn]struct{}{}}
	l.changed = sync.NewCond(&l.mu)
	go l.accept()
	return l, nil
}

func (l *link) address() string { return l.listener.Addr().String() }

// set says which ways are open.
func (l *link) set(up, down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up, l.down = up, down
	l.changed.Broadcast()
}

func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.changed.Broadcast()
	_ = l.listener.Close()
	for conn := range l.conns {
		_ = conn.Close()
	}
}

func (l *link) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.carry(near)
	}
}

func (l *link) carry(near net.Conn) {
	defer near.Close()
	if !l.keep(near) || !l.await(&l.up) || errorOf(near) != nil {
		return
	}
	far, err := net.Dial("tcp", l.target)
	if err != nil {
		return
	}
	defer far.Close()
	if !l.keep(far) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.pump(near, far, &l.up) })
	both.Go(func() { l.pump(far, near, &l.down) })
	both.Wait()
	l.forget(near)
	l.forget(far)
}

// pump ends both connections when one side has ended: a half-closed connection is of no use to HTTP.
func (l *link) pump(from, to net.Conn, way *bool) {
	const chunk = 64 << 10
	buffer := make([]byte, chunk)
	for {
		n, err := from.Read(buffer)
		if !l.await(way) || errorOf(from) != nil {
			reset(to)
			break
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_ = from.Close()
	_ = to.Close()
}

// await waits until the way is open.
func (l *link) await(way *bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !*way && !l.closed {
		l.changed.Wait()
	}
	return !l.closed
}

func (l *link) keep(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = conn.Close()
		return false
	}
	l.conns[conn] = struct{}{}
	return true
}

func (l *link) forget(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, conn)
}

// errorOf is what the kernel knows of a connection without reading from it: that it was reset.
func errorOf(conn net.Conn) error {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return errors.New("not a TCP connection")
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	var code int
	var failed error
	err = raw.Control(func(fd uintptr) {
		code, failed = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR)
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if code != 0 {
		return syscall.Errno(code)
	}
	return nil
}

func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}
