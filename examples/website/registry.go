package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
)

// registry is the URL of a DNS registry: PUT, GET and DELETE of /records/HOST.
type registry string

// do calls the registry for a host, and reports whether the host is registered.
func (r registry) do(ctx context.Context, method, host string) (bool, error) {
	request, err := http.NewRequestWithContext(ctx, method, string(r)+"/records/"+host, nil)
	if err != nil {
		return false, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, fmt.Errorf("calling the DNS registry: %w", err)
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		return true, nil
	case http.StatusNotFound:
		return false, nil
	default:
		return false, fmt.Errorf("calling the DNS registry: it answered %s", response.Status)
	}
}

// inMemory is a registry for trials and tests.
type inMemory struct{ hosts sync.Map }

func (m *inMemory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPut:
		m.hosts.Store(r.URL.Path, true)
	case http.MethodDelete:
		m.hosts.Delete(r.URL.Path)
	default:
		if _, ok := m.hosts.Load(r.URL.Path); !ok {
			w.WriteHeader(http.StatusNotFound)
		}
	}
}
