package lease

import (
	"context"
	"io"
	"net/http"
	"strings"
)

// RoundTripper sends writes through writes, if the guard allows it, and all other requests through reads. It
// should be the innermost transport, so that it checks requests after any rate limiting. The transport for
// writes should use connections of [Guard.Dial] that reads do not use.
func (g *Guard) RoundTripper(reads, writes http.RoundTripper, isWrite func(*http.Request) bool) http.RoundTripper {
	return &roundTripper{guard: g, reads: reads, writes: writes, isWrite: isWrite}
}

type roundTripper struct {
	guard         *Guard
	reads, writes http.RoundTripper
	isWrite       func(*http.Request) bool
}

// RoundTrip implements [http.RoundTripper].
func (t *roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	if !t.isWrite(request) {
		return t.reads.RoundTrip(request)
	}
	own, w, err := t.guard.begin(request.Context(), namespaceOf(request.URL.Path))
	if err != nil {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, err
	}
	response, err := t.writes.RoundTrip(request.WithContext(own))
	// Once the response headers arrive, the write has taken effect.
	if err = t.guard.end(request.Context(), own, w, err); err != nil {
		w.cancel(nil)
		return nil, err
	}
	response.Body = &responseBody{ReadCloser: response.Body, cancel: w.cancel}
	return response, nil
}

// WrappedRoundTripper lets client-go find the wrapped transport.
func (t *roundTripper) WrappedRoundTripper() http.RoundTripper { return t.reads }

// responseBody cancels the context of the write when it is closed.
type responseBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

// Close implements [io.Closer].
func (a *responseBody) Close() error {
	defer a.cancel(nil)
	return a.ReadCloser.Close()
}

// IsKubernetesWrite reports whether a request changes the cluster. Token and access reviews are not stored,
// so they are not writes; standby replicas need them to authorize requests for metrics.
func IsKubernetesWrite(request *http.Request) bool {
	return IsWrite(request) && !isReview(request.URL.Path)
}

func isReview(path string) bool {
	_, rest, _ := strings.Cut(path, "/apis/")
	return strings.HasPrefix(rest, "authentication.k8s.io/") || strings.HasPrefix(rest, "authorization.k8s.io/")
}

// IsWrite reports whether the method of a request is not read-only.
func IsWrite(request *http.Request) bool {
	switch request.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return true
}
