package authproxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"
)

// dialTimeout is the timeout of a connection to the server, which is on the same host.
const dialTimeout = 2 * time.Second

// upstream is the server behind the proxy: a port of this host. It may listen on all addresses, or only on localhost.
type upstream struct {
	port int
	// allowsHost is that of the options.
	allowsHost func(host string) bool
	// addresses are those of the host, other than localhost.
	addresses func() []netip.Addr
	// last is the address that accepted a connection; nil if it is not known.
	last atomic.Pointer[netip.AddrPort]
}

func newUpstream(port int, allowsHost func(host string) bool) *upstream {
	return &upstream{port: port, allowsHost: allowsHost, addresses: hostAddresses}
}

// localhost are the addresses that are tried last.
var localhost = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// address is one at which the server accepts connections.
func (u *upstream) address(ctx context.Context) (netip.AddrPort, error) {
	if last := u.last.Load(); last != nil {
		return *last, nil
	}
	return u.probe(ctx)
}

// probe finds an address at which the server accepts connections. Addresses of the host come first: there the server sees
// the same Host header as without the proxy, while servers that are reached at localhost often refuse other hosts.
func (u *upstream) probe(ctx context.Context) (netip.AddrPort, error) {
	var errs []error
	for _, address := range append(u.addresses(), localhost...) {
		at := netip.AddrPortFrom(address, uint16(u.port)) //nolint:gosec // it is a port
		conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", at.String())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		_ = conn.Close()
		u.last.Store(&at)
		return at, nil
	}
	u.last.Store(nil)
	return netip.AddrPort{}, errors.Join(errs...)
}

// forget makes the next request find the address again.
func (u *upstream) forget() { u.last.Store(nil) }

// host is the Host header for the server at an address.
func (u *upstream) host(at netip.AddrPort, sent string) string {
	if at.Addr().IsLoopback() && (u.allowsHost == nil || u.allowsHost(sent)) {
		return net.JoinHostPort("localhost", strconv.Itoa(u.port))
	}
	return sent
}

// hostAddresses are the addresses of this host, without localhost and those that need a zone.
func hostAddresses() []netip.Addr {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil // localhost is left
	}
	var addresses []netip.Addr
	for _, given := range all {
		network, ok := given.(*net.IPNet)
		if !ok {
			continue
		}
		if address, ok := netip.AddrFromSlice(network.IP); ok && address.Unmap().IsGlobalUnicast() {
			addresses = append(addresses, address.Unmap())
		}
	}
	return addresses
}
