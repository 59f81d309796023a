package fakecloud

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

// Do serves a request in the process. It implements the transport of the SDK, for clients that connect to no endpoint.
func (s *Server) Do(request *http.Request) (*http.Response, error) {
	if request.Body == nil {
		request.Body = http.NoBody
	}
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, request)
	response := recorder.Result()
	response.Request = request
	return response, nil
}

// Endpoint is a listening server, and what the SDK needs to connect to it.
type Endpoint struct {
	// URL is, for example, https://127.0.0.1:40123.
	URL string
	// CA is the PEM certificate of the CA that signed the server certificate; empty over HTTP.
	CA []byte

	server *http.Server
	pool   *x509.CertPool
	client *http.Client
}

// Start listens on HTTPS on a free loopback port.
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

// StartHTTP listens on plain HTTP on a free loopback port.
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
		// Serve returns ErrServerClosed when the endpoint is closed.
		_ = e.server.Serve(listener)
	}()
	return e
}

// Close stops listening and closes all connections. The server can be started again, as after an
// outage.
func (e *Endpoint) Close() {
	_ = e.server.Close()
	e.client.CloseIdleConnections()
}

// Cloud returns the SDK's cloud configuration.
func (e *Endpoint) Cloud() cloud.Configuration { return CloudAt(e.URL) }

// CloudAt returns the SDK's configuration for a cloud at a URL.
func CloudAt(url string) cloud.Configuration {
	return cloud.Configuration{
		ActiveDirectoryAuthorityHost: url + "/",
		Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
			cloud.ResourceManager: {Endpoint: url, Audience: "https://management.azure.com"},
		},
	}
}

// Client returns the HTTP client that trusts the server certificate. All callers share its connections.
func (e *Endpoint) Client() *http.Client { return e.client }

func clientTrusting(pool *x509.CertPool) *http.Client {
	const connections = 64 // enough for all concurrent callers of a test
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		MaxIdleConnsPerHost: connections,
	}}
}

// ClientOptions returns options for the SDK's clients. Retries are off, so that tests see every
// response.
func (e *Endpoint) ClientOptions() *arm.ClientOptions {
	return &arm.ClientOptions{
		ClientOptions: policy.ClientOptions{
			Cloud:     e.Cloud(),
			Transport: e.Client(),
			Retry:     policy.RetryOptions{MaxRetries: -1},
			// Sends the client request ID that the ledger shows.
			PerCallPolicies: []policy.Policy{runtime.NewRequestIDPolicy()},
			// Without this, the SDK does not send a token over plain HTTP.
			InsecureAllowCredentialWithHTTP: e.pool == nil,
		},
		// The server does not implement the registration of resource providers.
		DisableRPRegistration: true,
	}
}

// Credential returns the credential of a caller, for a server without configured tokens.
func (e *Endpoint) Credential(who string) azcore.TokenCredential { return StaticToken(Token(who)) }

// StaticToken is a credential with a fixed token.
type StaticToken string

// GetToken implements azcore.TokenCredential.
func (t StaticToken) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(t), ExpiresOn: time.Now().Add(24 * time.Hour)}, nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
