package lease

import (
	"context"
	"io"
	"net/http"
	"strings"
)

// RoundTripper sends what changes something through writes, if the guard lets it, and all else through
// reads. It has to stand as far inside as can be: what waits in front of it, such as for a limit on
// the rate, is judged after the wait. Writes should go over connections of [Guard.Dial], which are
// their own.
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
	own, w, err := t.guard.begin(request.Context())
	if err != nil {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, err
	}
	response, err := t.writes.RoundTrip(request.WithContext(own))
	// With the head of the answer, what was to be written is written.
	if err = t.guard.end(request.Context(), own, w, err); err != nil {
		w.cancel(nil)
		return nil, err
	}
	response.Body = &answer{ReadCloser: response.Body, cancel: w.cancel}
	return response, nil
}

// WrappedRoundTripper lets client-go find what is below.
func (t *roundTripper) WrappedRoundTripper() http.RoundTripper { return t.reads }

// answer ends the write's context when it has been read.
type answer struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

// Close implements [io.Closer].
func (a *answer) Close() error {
	defer a.cancel(nil)
	return a.ReadCloser.Close()
}

// IsKubernetesWrite tells the requests that change something in a cluster. Reviews are created, and
// stored nowhere: a standby needs them to know who reads its metrics.
func IsKubernetesWrite(request *http.Request) bool {
	return IsWrite(request) && !isReview(request.URL.Path)
}

func isReview(path string) bool {
	_, rest, found := strings.Cut(path, "/apis/")
	if !found {
		return false
	}
	return strings.HasPrefix(rest, "authentication.k8s.io/") || strings.HasPrefix(rest, "authorization.k8s.io/")
}

// IsWrite tells the requests that are more than a question.
func IsWrite(request *http.Request) bool {
	switch request.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return true
}
