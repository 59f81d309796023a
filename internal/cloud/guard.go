package cloud

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/fixpoint-dev/fixpoint/internal/lease"
)

// guarded is a transport that sends what changes something only if the guard lets it. Unless a
// transport is given, writes have connections of their own, which the guard can cut.
func guarded(guard *lease.Guard, given policy.Transporter) policy.Transporter {
	if given != nil {
		wire := carrier{given}
		return &http.Client{Transport: guard.RoundTripper(wire, wire, lease.IsWrite)}
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}
	return &http.Client{Transport: guard.RoundTripper(transportBy(dialer.DialContext), transportBy(guard.Dial(dialer.DialContext)), lease.IsWrite)}
}

// dialTimeout and what follows is as in the SDK's own transport.
const dialTimeout = 30 * time.Second

func transportBy(dial lease.Dialer) *http.Transport {
	const (
		idle      = 90 * time.Second
		handshake = 10 * time.Second
		ping      = 10 * time.Second
		pong      = 5 * time.Second
	)
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dial,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          100,
		MaxIdleConnsPerHost:   10,
		IdleConnTimeout:       idle,
		TLSHandshakeTimeout:   handshake,
		ExpectContinueTimeout: time.Second,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: ping, PingTimeout: pong},
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12, Renegotiation: tls.RenegotiateFreelyAsClient},
	}
}

// carrier makes a round tripper of what the SDK calls a transport.
type carrier struct{ transport policy.Transporter }

// RoundTrip implements [http.RoundTripper].
func (c carrier) RoundTrip(request *http.Request) (*http.Response, error) {
	return c.transport.Do(request)
}
