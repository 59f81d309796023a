package authorization

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	// fetchTimeout is the timeout for all requests of one load.
	fetchTimeout = 10 * time.Second
	// maxResponse bounds a response of an issuer, and a file with keys.
	maxResponse = 1 << 20
	// maxRedirects bounds the redirects of one request.
	maxRedirects = 3
)

// newKeyring returns the keys of an issuer.
func (o *Options) newKeyring(issuer Issuer, fetcher *fetcher) *keyring {
	k := &keyring{now: o.now, log: o.Log.WithValues("issuer", issuer.URL), refreshAfter: refreshAfter, retryAfter: retryAfter}
	switch {
	case issuer.Keys == "":
		k.load = func(ctx context.Context) ([]jose.JSONWebKey, error) { return fetcher.discovered(ctx, issuer.URL) }
	case filepath.IsAbs(issuer.Keys):
		k.load = (&keyFile{path: issuer.Keys}).load
		k.waits, k.refreshAfter, k.retryAfter = true, recheckAfter, recheckAfter
	default:
		k.load = func(ctx context.Context) ([]jose.JSONWebKey, error) { return fetcher.keys(ctx, issuer.Keys) }
	}
	return k
}

// fetcher reads from issuers.
type fetcher struct {
	client *http.Client
	// check returns why a URL is not allowed.
	check func(url string) error
}

func newFetcher(o *Options) *fetcher {
	f := &fetcher{check: o.checkURL}
	f.client = &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			TLSClientConfig:        &tls.Config{RootCAs: o.Roots, MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2:      true,
			MaxIdleConns:           2,
			IdleConnTimeout:        time.Minute,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return fmt.Errorf("more than %d redirects", maxRedirects)
			}
			return f.check(r.URL.String())
		},
	}
	return f
}

// keys fetches a JSON Web Key Set.
func (f *fetcher) keys(ctx context.Context, from string) ([]jose.JSONWebKey, error) {
	data, err := f.get(ctx, from)
	if err != nil {
		return nil, err
	}
	keys, err := parseKeys(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return keys, nil
}

// discovered fetches the keys of an issuer whose metadata says where they are.
func (f *fetcher) discovered(ctx context.Context, issuer string) ([]jose.JSONWebKey, error) {
	addresses, err := metadataURLs(issuer)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, address := range addresses {
		from, err := f.keysURL(ctx, address, issuer)
		if err == nil {
			return f.keys(ctx, from)
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("the issuer has no metadata from which its keys are known, set their URL: %w", errors.Join(errs...))
}

// metadataURLs are where the metadata of an issuer may be, in the order of the MCP specification.
func metadataURLs(issuer string) ([]string, error) {
	u, err := url.Parse(issuer)
	if err != nil {
		return nil, fmt.Errorf("parsing the issuer: %w", err)
	}
	path := strings.TrimSuffix(u.EscapedPath(), "/")
	origin := u.Scheme + "://" + u.Host
	if path == "" {
		return []string{origin + "/.well-known/oauth-authorization-server", origin + "/.well-known/openid-configuration"}, nil
	}
	return []string{
		origin + "/.well-known/oauth-authorization-server" + path,
		origin + "/.well-known/openid-configuration" + path,
		origin + path + "/.well-known/openid-configuration",
	}, nil
}

// keysURL reads the metadata of an issuer.
func (f *fetcher) keysURL(ctx context.Context, address, issuer string) (string, error) {
	data, err := f.get(ctx, address)
	if err != nil {
		return "", err
	}
	var metadata struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(data, &metadata); err != nil {
		return "", fmt.Errorf("%s: reading the metadata: %w", address, err)
	}
	switch {
	case metadata.Issuer != issuer:
		return "", fmt.Errorf("%s: the metadata is of the issuer %q, not %q: correct the issuer", address, metadata.Issuer, issuer)
	case metadata.Keys == "":
		return "", fmt.Errorf("%s: the metadata has no jwks_uri", address)
	}
	return metadata.Keys, nil
}

func (f *fetcher) get(ctx context.Context, address string) ([]byte, error) {
	if err := f.check(address); err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("getting %s: %w", address, err)
	}
	request.Header.Set("Accept", "application/json")
	response, err := f.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("getting keys: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("getting %s: status %d", address, response.StatusCode)
	}
	data, err := bounded(response.Body)
	if err != nil {
		return nil, fmt.Errorf("getting %s: %w", address, err)
	}
	return data, nil
}

func bounded(from io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, maxResponse+1))
	if err == nil && len(data) > maxResponse {
		return nil, fmt.Errorf("larger than %d bytes", maxResponse)
	}
	return data, err
}

// keyFile reads keys from a file, such as one of a mounted ConfigMap, which the kubelet replaces when it changes.
type keyFile struct {
	path string
	// last describes the file as it was read last.
	last os.FileInfo
}

// load is called by one goroutine at a time.
func (k *keyFile) load(context.Context) ([]jose.JSONWebKey, error) {
	file, err := os.Open(k.path)
	if err != nil {
		return nil, fmt.Errorf("reading the keys: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading the keys: %w", err)
	}
	if k.last != nil && os.SameFile(k.last, info) && info.ModTime().Equal(k.last.ModTime()) && info.Size() == k.last.Size() {
		return nil, errUnchanged
	}
	data, err := bounded(file)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", k.path, err)
	}
	keys, err := parseKeys(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.path, err)
	}
	k.last = info
	return keys, nil
}

// LoadRoots returns the CA certificates of the system, and those in a file if it exists.
func LoadRoots(path string) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if path == "" {
		return pool, nil
	}
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return pool, nil
	case err != nil:
		return nil, fmt.Errorf("reading CA certificates: %w", err)
	case !pool.AppendCertsFromPEM(data):
		return nil, fmt.Errorf("%s has no CA certificates in PEM format", path)
	}
	return pool, nil
}
