package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/fixpoint-dev/fixpoint/test/lockfile"
)

// Ports are taken from below the range that the kernel gives to outgoing
// connections, which would otherwise take a port between its being found free and
// the program listening on it.
const firstPort, lastPort = 20000, 32000

// port is held for this process until released, also against other processes that
// look for one at the same time and have not begun to listen.
type port struct {
	number int
	lock   *os.File
}

func (p *port) String() string { return strconv.Itoa(p.number) }

// FreeAddress is one of loopback to listen on, for a program that is about to be started. It is held, also
// against other processes that look for one, until release is called or this process ends.
func FreeAddress() (address string, release func(), err error) {
	p, err := freePort()
	if err != nil {
		return "", nil, err
	}
	return net.JoinHostPort(loopback, p.String()), p.release, nil
}

func (p *port) release() {
	if p != nil {
		_ = p.lock.Close()
	}
}

func freePort() (*port, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("fixpoint-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of port locks: %w", err)
	}
	for range 200 {
		number := firstPort + rand.IntN(lastPort-firstPort)
		lock, err := lockfile.Try(filepath.Join(dir, strconv.Itoa(number)))
		if err != nil {
			continue
		}
		if listens(number) {
			_ = lock.Close()
			continue
		}
		return &port{number: number, lock: lock}, nil
	}
	return nil, fmt.Errorf("finding a free port between %d and %d: none of 200 tried", firstPort, lastPort)
}

// listens tells whether the port is in use.
func listens(number int) bool {
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(number)))
	if err != nil {
		return true
	}
	_ = listener.Close()
	return false
}
