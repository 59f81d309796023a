package prober

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Transport is the MCP transport of a server.
type Transport string

// The supported transports.
const (
	StreamableHTTP Transport = "streamable-http"
	SSE            Transport = "sse"
)

const (
	// DefaultInterval is the default time between two probes of a replica.
	DefaultInterval = 30 * time.Second
	// DefaultTimeout is the default timeout of a probe.
	DefaultTimeout = 5 * time.Second
	// MaxTimeout is the longest timeout of a probe.
	MaxTimeout = 30 * time.Second
)

// Target is what to probe. The prober keeps a copy.
type Target struct {
	// URL is the endpoint of the server for clients. Its host is the Host of all requests and the name
	// that the certificate must be valid for, whichever replica is dialled.
	URL string
	// Transport defaults to StreamableHTTP.
	Transport Transport
	// Addresses are the host:port addresses of the serving replicas. Each is probed separately. If empty,
	// the host of the URL is probed.
	Addresses []string
	// Unready are the addresses of replicas that do not serve yet. They are probed for their contracts: the State, the
	// numbers of replicas and the description of the server do not cover them. Optional.
	Unready []string
	// Identities map an address to the identity of its replica, such as a pod UID, because addresses can
	// be reused. Optional.
	Identities map[string]string
	// Version is the version of the replicas. When it changes, the description of the server is read
	// again; results of existing replicas stay. Optional.
	Version string
	// Bearer is sent as a bearer token in the Authorization header, only to the host of the URL, without
	// surrounding white space; empty sends none.
	Bearer Credential
	// CA is a bundle of PEM certificates that replace the system CAs; nil trusts the system CAs.
	CA []byte
	// Interval is the time between two probes of a replica; DefaultInterval if 0.
	Interval time.Duration
	// Timeout is the timeout of a probe, at most Interval and MaxTimeout; DefaultTimeout if 0. Greater
	// values are lowered.
	Timeout time.Duration
	// Contract also derives what the server offers, for Result.Contract, from the lists of full probes. It lists all
	// replicas when they are new, and when the first one offers something else than before.
	Contract bool
	// Verify lists all replicas with each probe, for Result.Offers. It requires Contract.
	Verify bool
	// Token identifies the server. When it, URL or Transport changes, previous results are dropped and a
	// probe is due immediately.
	Token string
}

// Credential is a secret value. It is never printed.
type Credential []byte

// Format implements fmt.Formatter.
func (c Credential) Format(state fmt.State, _ rune) {
	if len(c) > 0 {
		_, _ = state.Write([]byte("[hidden]"))
	}
}

// MarshalText implements encoding.TextMarshaler, which JSON and structured logs use.
func (c Credential) MarshalText() ([]byte, error) {
	return fmt.Append(nil, c), nil
}

// complete returns a copy with defaults and with sorted, unique addresses.
func (t Target) complete() Target {
	if t.Transport == "" {
		t.Transport = StreamableHTTP
	}
	if t.Interval <= 0 {
		t.Interval = DefaultInterval
	}
	if t.Timeout <= 0 {
		t.Timeout = DefaultTimeout
	}
	t.Timeout = min(t.Timeout, t.Interval, MaxTimeout)
	t.Addresses = slices.Clone(t.Addresses)
	slices.Sort(t.Addresses)
	t.Addresses = slices.Compact(t.Addresses)
	t.Unready = slices.DeleteFunc(slices.Clone(t.Unready), func(address string) bool { return slices.Contains(t.Addresses, address) })
	slices.Sort(t.Unready)
	t.Unready = slices.Compact(t.Unready)
	if len(t.Addresses)+len(t.Unready) == 0 {
		t.Addresses = []string{""}
	}
	t.Identities = maps.Clone(t.Identities)
	t.Bearer = bytes.Clone(t.Bearer)
	t.CA = bytes.Clone(t.CA)
	return t
}

// sameServer reports whether results of t are valid for other.
func (t Target) sameServer(other Target) bool {
	return t.Token == other.Token && t.URL == other.URL && t.Transport == other.Transport
}

// sameRequest reports whether probes of both send the same credential and trust the same CA.
func (t Target) sameRequest(other Target) bool {
	return bytes.Equal(t.Bearer, other.Bearer) && bytes.Equal(t.CA, other.CA) && (t.CA == nil) == (other.CA == nil)
}
