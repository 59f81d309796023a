package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
)

// tokenFile contains the token of the pod's service account.
const tokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token" //nolint:gosec // A path, and no credentials.

// scraped is the result of a metrics request.
type scraped struct {
	// Anonymous and Status are the HTTP statuses without a token and with the pod's token.
	Anonymous int `json:"anonymous"`
	Status    int `json:"status"`
	// Lines is the number of lines.
	Lines int `json:"lines"`
	// Serial is the serial number of the verified certificate.
	Serial string `json:"serial"`
}

// scrape reads metrics from an address and verifies the server's certificate for the name and the authority.
func scrape(ctx context.Context, address, name, authority string) (*scraped, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(authority)) {
		return nil, errors.New("ca is no certificate")
	}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}
	defer transport.CloseIdleConnections()
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return nil, fmt.Errorf("reading who this pod is: %w", err)
	}
	found := &scraped{}
	found.Anonymous, _, err = found.get(ctx, transport, name, "")
	if err != nil {
		return nil, err
	}
	var metrics string
	if found.Status, metrics, err = found.get(ctx, transport, name, "Bearer "+string(token)); err != nil {
		return nil, err
	}
	found.Lines = strings.Count(metrics, "\n")
	return found, nil
}

func (s *scraped) get(ctx context.Context, transport *http.Transport, name, authorization string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+name+"/metrics", nil)
	if err != nil {
		return 0, "", err
	}
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response, err := (&http.Client{Transport: transport, Timeout: callTimeout}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	s.Serial = response.TLS.PeerCertificates[0].SerialNumber.String()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}
