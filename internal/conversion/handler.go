package conversion

import (
	"errors"
	"io"
	"net/http"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
)

// Path is the URL path of the webhook.
const Path = "/convert"

const (
	// maxReview is the maximum size of a request, in bytes. The API server converts stored objects one at a time, and
	// none is larger than 3 MiB.
	maxReview = 64 << 20
	// maxMemory is the maximum size of all requests that are served at the same time, in bytes. The webhook has no
	// authentication, so that every pod in the cluster can send requests.
	maxMemory = 128 << 20
	// firstRead is the size of the first read of a request whose length is unknown.
	firstRead = 64 << 10
)

// Handler serves ConversionReviews. It has no state, so every replica serves it, and at any time.
func Handler(logger logr.Logger) http.Handler {
	memory := semaphore.NewWeighted(maxMemory)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.Error(w, "send a ConversionReview in a POST request", http.StatusMethodNotAllowed)
			return
		}
		body, err := read(http.MaxBytesReader(w, r.Body, maxReview), func(bytes int) error { return memory.Acquire(r.Context(), int64(bytes)) })
		defer memory.Release(int64(cap(body)))
		if err != nil {
			http.Error(w, "reading the request: "+err.Error(), http.StatusBadRequest)
			return
		}
		response, err := Review(body)
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

// read reads a request. It acquires the memory as the request arrives, so that announcing a large one costs nothing. The
// capacity of what it returns is what it acquired, also with an error.
func read(from io.Reader, acquire func(bytes int) error) ([]byte, error) {
	var body []byte
	for {
		if len(body) == cap(body) {
			larger := max(2*cap(body), firstRead)
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
