package conversion

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
)

// Path is the URL path of the webhook.
const Path = "/convert"

const (
	// maxReview is the maximum size of a request, in bytes. The API server converts stored objects one at a time, and
	// none is larger than 3 MiB.
	maxReview = 32 << 20
	// maxMemory is the maximum size of all requests that are served at the same time, in bytes. The webhook has no
	// authentication, so that every pod in the cluster can send requests.
	maxMemory = 128 << 20
	// The first read of a request has its length, but at least and at most these, in bytes. So requests of the usual
	// size never wait for memory while they hold some.
	minRead, maxRead = 64 << 10, 4 << 20
	// maxWait is how long a request waits for memory. While its body is not read, the context of a request does not end with
	// its connection, so that clients that have left would hold memory without end.
	maxWait = 10 * time.Second
)

// Handler serves ConversionReviews. It has no state, so every replica serves it, and at any time. The metrics may be
// nil.
func Handler(logger logr.Logger, metrics *Metrics) http.Handler {
	memory := newMemory(maxMemory)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.Error(w, "send a ConversionReview in a POST request", http.StatusMethodNotAllowed)
			return
		}
		client, _, _ := net.SplitHostPort(r.RemoteAddr) // an address without a port is a client as well
		held := memory.begin(client)
		defer held.end()
		waits, cancel := context.WithTimeout(r.Context(), maxWait)
		defer cancel()
		body, err := read(http.MaxBytesReader(w, r.Body, maxReview), r.ContentLength, func(bytes int) error { return held.acquire(waits, int64(bytes)) })
		if err != nil {
			http.Error(w, "reading the request: "+err.Error(), http.StatusBadRequest)
			return
		}
		began := time.Now()
		response, result, err := answer(body)
		metrics.observe(result, time.Since(began))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if _, err := w.Write(response); err != nil {
			logger.V(1).Info("Failed to send a converted object", "error", err.Error())
		}
	})
}

// read reads a request. It acquires the memory of a large one as it arrives, so that announcing it costs little.
func read(from io.Reader, length int64, acquire func(bytes int) error) ([]byte, error) {
	var body []byte
	first := int(min(max(length+1, minRead), maxRead)) // one more, to read the end
	for {
		if len(body) == cap(body) {
			larger := max(2*cap(body), first)
			if err := acquire(larger - cap(body)); err != nil {
				return body, err
			}
			body = append(make([]byte, 0, larger), body...)
		}
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return body, err
		}
	}
}
