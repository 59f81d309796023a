package cloud

import (
	"crypto/tls"
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
	reads, writes := newTransport(), newTransport()
	writes.DialContext = guard.Dial(writes.DialContext)
	return &http.Client{Transport: guard.RoundTripper(reads, writes, lease.IsWrite)}
}

// newTransport has the settings of the SDK's own transport.
func newTransport() *http.Transport {
	const (
		ping = 10 * time.Second
		pong = 5 * time.Second
	)
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck,forcetypeassert // it is one
	transport.MaxIdleConnsPerHost = 10
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: ping, PingTimeout: pong}
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, Renegotiation: tls.RenegotiateFreelyAsClient}
	return transport
}

// transporter adapts the SDK's transport interface to [http.RoundTripper].
type transporter struct{ transport policy.Transporter }

// RoundTrip implements [http.RoundTripper].
func (c transporter) RoundTrip(request *http.Request) (*http.Response, error) {
	return c.transport.Do(request)
}
