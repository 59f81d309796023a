package cloud

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/fixpoint-dev/fixpoint/internal/lease"
)

// guarded returns a transport that sends writes only if the guard permits. Unless a transport is given,
// writes use separate connections, which the guard can close.
func guarded(guard *lease.Guard, given policy.Transporter) policy.Transporter {
	if given != nil {
		wire := transporter{given}
		return &http.Client{Transport: guard.RoundTripper(wire, wire, lease.IsWrite)}
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}
	return &http.Client{Transport: guard.RoundTripper(transportBy(dialer.DialContext), transportBy(guard.Dial(dialer.DialContext)), lease.IsWrite)}
}

// dialTimeout and the timeouts below are those of the SDK's own transport.
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

// transporter adapts the SDK's transport interface to [http.RoundTripper].
type transporter struct{ transport policy.Transporter }

// RoundTrip implements [http.RoundTripper].
func (c transporter) RoundTrip(request *http.Request) (*http.Response, error) {
	return c.transport.Do(request)
}
