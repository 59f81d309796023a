package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/fixpoint-dev/fixpoint/test/lockfile"
)

// Ports are below the range for outgoing connections. Otherwise the kernel could use a free port before the component
// listens on it.
const firstPort, lastPort = 20000, 32000

// port is reserved for this process until it is released. Other processes that reserve ports respect that.
type port struct {
	number int
	lock   *os.File
}

func (p *port) String() string { return strconv.Itoa(p.number) }

// FreeAddress returns a free loopback address for a component that is about to start. It stays reserved until release is
// called or this process exits.
func FreeAddress() (address string, release func(), err error) {
	p, err := freePort()
	if err != nil {
		return "", nil, err
	}
	return net.JoinHostPort(loopback, p.String()), p.release, nil
}

// MachineAddress returns an IP address of this machine that an EndpointSlice may have, which a loopback address is not.
// Requests to it do not leave the machine.
func MachineAddress() (string, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("listing the addresses of this machine: %w", err)
	}
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP.String(), nil
		}
	}
	return "", errors.New("this machine has no IPv4 address but those of the loopback interface, which an EndpointSlice cannot have: add one, for example to a dummy interface")
}

func (p *port) release() {
	if p != nil {
		_ = p.lock.Close()
	}
}

func freePort() (*port, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("fixpoint-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the directory of port locks: %w", err)
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
	return nil, fmt.Errorf("finding a free port between %d and %d: none found in 200 attempts", firstPort, lastPort)
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
