package conversion

import (
	"io"
	"net/http"

	"github.com/go-logr/logr"
)

// Path is the URL path of the webhook.
const Path = "/convert"

// maxReview is the maximum size of a request, in bytes. The API server sends the objects of a list in one request, and
// reads lists in parts.
const maxReview = 1 << 30

// Handler serves ConversionReviews. It has no state, so every replica serves it, and at any time.
func Handler(logger logr.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.Error(w, "send a ConversionReview in a POST request", http.StatusMethodNotAllowed)
			return
		}
		body, err := read(w, r)
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

func read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limited := http.MaxBytesReader(w, r.Body, maxReview)
	if length := r.ContentLength; length > 0 && length <= 16<<20 {
		body := make([]byte, length)
		_, err := io.ReadFull(limited, body)
		return body, err
	}
	return io.ReadAll(limited)
}
