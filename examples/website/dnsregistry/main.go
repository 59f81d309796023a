// Command dnsregistry stands in for the DNS registry of a provider: PUT, GET and
// DELETE of /records/HOST, in memory.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"
)

func main() {
	address := flag.String("address", "127.0.0.1:8053", "Address to listen on.")
	flag.Parse()
	server := &http.Server{Addr: *address, Handler: &records{}, ReadHeaderTimeout: 5 * time.Second}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	os.Exit(1)
}

// records are the paths that exist.
type records struct{ paths sync.Map }

func (s *records) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPut:
		s.paths.Store(r.URL.Path, true)
	case http.MethodDelete:
		s.paths.Delete(r.URL.Path)
	default:
		if _, exists := s.paths.Load(r.URL.Path); !exists {
			w.WriteHeader(http.StatusNotFound)
		}
	}
}
