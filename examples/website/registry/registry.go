// Package registry is a tiny DNS registry with an HTTP API, and its client: what a
// step of a real operator would find at a provider.
package registry

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
)

// Server keeps records in memory: PUT, GET and DELETE of /records/HOST.
type Server struct{ records sync.Map }

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPut:
		s.records.Store(r.URL.Path, true)
	case http.MethodDelete:
		s.records.Delete(r.URL.Path)
	default:
		if _, ok := s.records.Load(r.URL.Path); !ok {
			http.NotFound(w, r)
		}
	}
}

// Client calls a registry at a URL.
type Client struct{ URL string }

// Has reports whether a host is registered.
func (c Client) Has(ctx context.Context, host string) (bool, error) {
	status, err := c.do(ctx, http.MethodGet, host)
	return status == http.StatusOK, err
}

// Register registers a host. It may be registered already.
func (c Client) Register(ctx context.Context, host string) error {
	_, err := c.do(ctx, http.MethodPut, host)
	return err
}

// Remove removes a host. It may be removed already.
func (c Client) Remove(ctx context.Context, host string) error {
	_, err := c.do(ctx, http.MethodDelete, host)
	return err
}

func (c Client) do(ctx context.Context, method, host string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.URL+"/records/"+url.PathEscape(host), nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("calling the registry: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 && response.StatusCode != http.StatusNotFound {
		return 0, fmt.Errorf("the registry answered %s", response.Status)
	}
	return response.StatusCode, nil
}
