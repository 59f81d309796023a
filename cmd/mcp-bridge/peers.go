package main

import (
	"flag"
	"fmt"
	"net"
	"net/netip"

	"github.com/fixpoint-dev/fixpoint/internal/peers"
)

// peerFlags configure that each replica of the server serves the sessions of all.
type peerFlags struct {
	listenOn string
	ip       string
	options  peers.Options
}

func (p *peerFlags) register(flags *flag.FlagSet) {
	o := &p.options
	flags.StringVar(&o.KeyDirectory, "session-keys", "", "`directory` with the keys that the replicas of the server share, so that each of them serves the sessions of all (default: a session is served by the replica that it was started on)")
	flags.StringVar(&o.Server, "server-id", "", "`id` of the server, the same for its replicas and no other server; with -session-keys")
	flags.StringVar(&p.listenOn, "peer-listen", ":9292", "`address` for the requests that other replicas forward; with -session-keys")
	flags.StringVar(&p.ip, "peer-ip", "", "IP `address` at which other replicas reach this one; with -session-keys")
	flags.DurationVar(&o.ConnectTimeout, "peer-connect-timeout", 0, "time to connect to another replica, after which its sessions count as ended (default 3s)")
}

func (p *peerFlags) isSet() bool { return p.options.KeyDirectory != "" }

// listen opens the listener for other replicas, and sets where they reach it.
func (p *peerFlags) listen() (net.Listener, error) {
	ip, err := netip.ParseAddr(p.ip)
	if err != nil {
		return nil, fmt.Errorf("reading -peer-ip: %w", err)
	}
	listener, err := net.Listen("tcp", p.listenOn)
	if err != nil {
		return nil, fmt.Errorf("listening for other replicas: %w", err)
	}
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("listening for other replicas: unexpected address %s", listener.Addr())
	}
	p.options.Address = netip.AddrPortFrom(ip, address.AddrPort().Port())
	return listener, nil
}
