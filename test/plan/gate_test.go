package plan_test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// gate lets a manager write, or not. It is a transport for the API server and for the cloud.
type gate struct {
	mu      sync.Mutex
	changed *sync.Cond
	open    bool
	// once closes the gate after a status is written.
	once bool
	// reported is closed when it was.
	reported chan struct{}
	// cloudWrites is how many writes to the cloud have passed.
	cloudWrites atomic.Int64
}

func newGate() *gate {
	g := &gate{open: true}
	g.changed = sync.NewCond(&g.mu)
	return g
}

func (g *gate) set(open, once bool) (reported <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open, g.once, g.reported = open, once, make(chan struct{})
	g.changed.Broadcast()
	return g.reported
}

// pass waits until the gate is open. It holds back the end of the process too: the last test opens it.
func (g *gate) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for !g.open {
		g.changed.Wait()
	}
}

// wrote closes the gate if that was the end of a reconcile.
func (g *gate) wrote() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open && g.once {
		g.open = false
		close(g.reported)
	}
}

// aroundCloud is the same for the cloud, and counts the writes.
func (g *gate) aroundCloud(next http.RoundTripper) roundTripper {
	return func(request *http.Request) (*http.Response, error) {
		if request.Method != http.MethodGet {
			g.pass()
			g.cloudWrites.Add(1)
		}
		return next.RoundTrip(request)
	}
}

// around sends requests to the API server through the gate.
func (g *gate) around(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		isRead := request.Method == http.MethodGet || request.Method == http.MethodHead
		if isRead || strings.Contains(request.URL.Path, "/events") {
			return next.RoundTrip(request)
		}
		g.pass()
		response, err := next.RoundTrip(request)
		if err == nil && strings.HasSuffix(request.URL.Path, "/status") && response.StatusCode < http.StatusBadRequest {
			g.wrote()
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// Do implements the transport of the SDK.
func (f roundTripper) Do(request *http.Request) (*http.Response, error) { return f(request) }
