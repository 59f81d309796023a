package fakecloud

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

// Endpoint is a server that listens, and what the SDK has to know of it.
type Endpoint struct {
	// URL is such as https://127.0.0.1:40123.
	URL string
	// CA is the certificate that has signed the server's, in PEM; empty over HTTP.
	CA []byte

	server *http.Server
	pool   *x509.CertPool
	client *http.Client
}

// Start listens over HTTPS on a free port of the loopback.
func (s *Server) Start() *Endpoint {
	authority, err := NewAuthority()
	if err != nil {
		panic(fmt.Sprintf("fakecloud: making a certificate: %v", err))
	}
	certificate, err := authority.Issue("localhost", "127.0.0.1", "::1")
	if err != nil {
		panic(fmt.Sprintf("fakecloud: making a certificate: %v", err))
	}
	listener := listenLoopback()
	e := serve(s, tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}))
	e.URL = "https://" + listener.Addr().String()
	e.CA = authority.PEM()
	e.pool = x509.NewCertPool()
	e.pool.AppendCertsFromPEM(e.CA)
	e.client = clientTrusting(e.pool)
	return e
}

// StartHTTP listens over plain HTTP on a free port of the loopback.
func (s *Server) StartHTTP() *Endpoint {
	listener := listenLoopback()
	e := serve(s, listener)
	e.URL = "http://" + listener.Addr().String()
	e.client = clientTrusting(nil)
	return e
}

func listenLoopback() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(fmt.Sprintf("fakecloud: listening on the loopback: %v", err))
	}
	return listener
}

func serve(s *Server, listener net.Listener) *Endpoint {
	e := &Endpoint{server: &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}}
	go func() {
		// It ends with ErrServerClosed when the endpoint is closed.
		_ = e.server.Serve(listener)
	}()
	return e
}

// Close stops listening and closes all connections. The server itself goes on: it can
// be started again, as after an outage.
func (e *Endpoint) Close() {
	_ = e.server.Close()
	e.client.CloseIdleConnections()
}

// Cloud is what the SDK takes for the cloud to talk to.
func (e *Endpoint) Cloud() cloud.Configuration { return CloudAt(e.URL) }

// CloudAt is the configuration of a cloud at an address.
func CloudAt(url string) cloud.Configuration {
	return cloud.Configuration{
		ActiveDirectoryAuthorityHost: url + "/",
		Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
			cloud.ResourceManager: {Endpoint: url, Audience: "https://management.azure.com"},
		},
	}
}

// Client is an HTTP client that trusts the server's certificate. All get the same one,
// and with it the same connections.
func (e *Endpoint) Client() *http.Client { return e.client }

func clientTrusting(pool *x509.CertPool) *http.Client {
	const connections = 64 // As many callers as a test has keep theirs.
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		MaxIdleConnsPerHost: connections,
	}}
}

// ClientOptions are what the SDK's clients need to talk to this cloud. Their retries
// are off: whoever tests manners wants to see each.
func (e *Endpoint) ClientOptions() *arm.ClientOptions {
	return &arm.ClientOptions{
		ClientOptions: policy.ClientOptions{
			Cloud:     e.Cloud(),
			Transport: e.Client(),
			Retry:     policy.RetryOptions{MaxRetries: -1},
			// Gives calls the client request id that the ledger shows.
			PerCallPolicies: []policy.Policy{runtime.NewRequestIDPolicy()},
			// Without this the SDK refuses to send a token over plain HTTP.
			InsecureAllowCredentialWithHTTP: e.pool == nil,
		},
		// The cloud needs no provider registered, and knows no such call.
		DisableRPRegistration: true,
	}
}

// Credential is a token that makes its holder who, on a server that was given no
// tokens of its own.
func (e *Endpoint) Credential(who string) azcore.TokenCredential { return StaticToken(Token(who)) }

// StaticToken is a credential that always gives the same token.
type StaticToken string

// GetToken implements azcore.TokenCredential.
func (t StaticToken) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(t), ExpiresOn: time.Now().Add(24 * time.Hour)}, nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
