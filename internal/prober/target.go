package prober

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Transport is how a server speaks MCP.
type Transport string

// The transports that can be probed.
const (
	StreamableHTTP Transport = "streamable-http"
	SSE            Transport = "sse"
)

const (
	// DefaultInterval is the time between two probes of one replica.
	DefaultInterval = 30 * time.Second
	// DefaultTimeout is the time that one probe may take.
	DefaultTimeout = 5 * time.Second
)

// Target is what to probe. The prober keeps its own copy.
type Target struct {
	// URL is the endpoint as clients know it. Its host is the Host of every request and the name
	// that the certificate must be for, whichever replica is dialled.
	URL string
	// Transport is StreamableHTTP if it is empty.
	Transport Transport
	// Addresses are the replicas that take traffic, each as host:port. Each is probed by itself,
	// in an order of its own. None means one probe of the URL as it stands.
	Addresses []string
	// Identities tell replicas apart that have the same address one after the other, such as pods, by
	// the address. Optional.
	Identities map[string]string
	// Version says what the replicas run. When it changes, the server's word is asked for anew; what
	// was found out about replicas that stay counts on. Optional.
	Version string
	// Headers are sent with every request, and to no other host than the URL's.
	Headers map[string]Credential
	// Bearer is sent as the Authorization header, without the white space around it; empty sends
	// none.
	Bearer Credential
	// CA is a bundle of PEM certificates, and the only ones trusted; nil trusts the system's.
	CA []byte
	// Interval is the time between two probes of one replica; DefaultInterval if it is zero.
	Interval time.Duration
	// Timeout is the time that one probe may take, at most Interval; DefaultTimeout if it is zero.
	Timeout time.Duration
	// Token says which server this is. When it changes, as when URL or Transport do, what was
	// found before counts no more and a probe is due at once.
	Token string
}

// Credential is what must not be read in a log: however it is printed, it is not shown.
type Credential []byte

// Format implements fmt.Formatter.
func (c Credential) Format(state fmt.State, _ rune) {
	if len(c) > 0 {
		_, _ = state.Write([]byte("[hidden]"))
	}
}

// MarshalText implements encoding.TextMarshaler, which JSON and structured logs go by.
func (c Credential) MarshalText() ([]byte, error) {
	return fmt.Append(nil, c), nil
}

// complete returns a copy with defaults set and replicas sorted, each once.
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
	t.Timeout = min(t.Timeout, t.Interval)
	t.Addresses = slices.Clone(t.Addresses)
	slices.Sort(t.Addresses)
	t.Addresses = slices.Compact(t.Addresses)
	if len(t.Addresses) == 0 {
		t.Addresses = []string{""}
	}
	t.Identities = maps.Clone(t.Identities)
	t.Headers = cloneHeaders(t.Headers)
	t.Bearer = bytes.Clone(t.Bearer)
	t.CA = bytes.Clone(t.CA)
	return t
}

func cloneHeaders(headers map[string]Credential) map[string]Credential {
	clone := make(map[string]Credential, len(headers))
	for name, value := range headers {
		clone[name] = bytes.Clone(value)
	}
	return clone
}

// sameServer reports whether what was found out about t still holds for other.
func (t Target) sameServer(other Target) bool {
	return t.Token == other.Token && t.URL == other.URL && t.Transport == other.Transport
}

// sameRequest reports whether a probe of other would send what a probe of t sends, and trust whom
// it trusts.
func (t Target) sameRequest(other Target) bool {
	return bytes.Equal(t.Bearer, other.Bearer) && bytes.Equal(t.CA, other.CA) && (t.CA == nil) == (other.CA == nil) &&
		maps.EqualFunc(t.Headers, other.Headers, func(a, b Credential) bool { return bytes.Equal(a, b) })
}
