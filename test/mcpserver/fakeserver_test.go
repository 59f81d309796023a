package mcpserver_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// fakeServer is a server of the Model Context Protocol that answers in place of all that the managers
// of a test probe.
type fakeServer struct {
	http    *httptest.Server
	handler http.Handler
	// answers is what the server offers.
	answers *mcp.Server

	mu sync.Mutex
	// broken servers answer every request with an error.
	broken bool
	// hangs keeps every request waiting until its client gives up.
	hangs bool
	// inLine is how many requests wait.
	inLine atomic.Int32
	// token, if there is one, is what a request has to carry.
	token string
	asked map[string]int
	// open is how many connections clients have.
	open atomic.Int32
}

func newFakeServer(t *testing.T) *fakeServer {
	t.Helper()
	s := newServer("1.2.3")
	s.http = httptest.NewUnstartedServer(s.handler)
	s.http.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.open.Add(1)
		case http.StateClosed, http.StateHijacked:
			s.open.Add(-1)
		}
	}
	s.http.Start()
	t.Cleanup(s.close)
	return s
}

// newServer is a stand-in that is not served yet.
func newServer(version string) *fakeServer {
	answers := mcp.NewServer(&mcp.Implementation{Name: "stand-in", Version: version}, nil)
	type nothing struct{}
	for _, name := range []string{"one", "two"} {
		mcp.AddTool(answers, &mcp.Tool{Name: name}, func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, nothing, error) {
			return &mcp.CallToolResult{}, nothing{}, nil
		})
	}
	serve := func(*http.Request) *mcp.Server { return answers }
	paths := http.NewServeMux()
	// Requests come under the name of the Service.
	paths.Handle("/sse", mcp.NewSSEHandler(serve, &mcp.SSEOptions{DisableLocalhostProtection: true}))
	paths.Handle("/", mcp.NewStreamableHTTPHandler(serve, &mcp.StreamableHTTPOptions{DisableLocalhostProtection: true}))
	s := &fakeServer{answers: answers, asked: map[string]int{}}
	s.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.isHanging(r) {
			s.inLine.Add(1)
			defer s.inLine.Add(-1)
			_, _ = io.Copy(io.Discard, r.Body) // a client that goes is noticed only behind it
			<-r.Context().Done()
			return
		}
		if status := s.refuses(r); status != 0 {
			w.WriteHeader(status)
			return
		}
		paths.ServeHTTP(w, r)
	})
	return s
}

func (s *fakeServer) close() {
	s.http.CloseClientConnections()
	s.http.Close()
}

// isHanging counts the requests that hang.
func (s *fakeServer) isHanging(r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hangs {
		s.asked[r.URL.Path]++
	}
	return s.hangs
}

func (s *fakeServer) waiting() int { return int(s.inLine.Load()) }

func (s *fakeServer) hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangs = true
}

func (s *fakeServer) refuses(r *http.Request) (status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[r.URL.Path]++
	switch {
	case s.broken:
		return http.StatusInternalServerError
	case s.token != "" && r.Header.Get("Authorization") != "Bearer "+s.token:
		return http.StatusUnauthorized
	default:
		return 0
	}
}

// connections is how many there are. Each probe opens its own, and closes them after the session.
func (s *fakeServer) connections() int { return int(s.open.Load()) }

func (s *fakeServer) endpoint() *url.URL {
	endpoint, err := url.Parse(s.http.URL)
	if err != nil {
		panic(err) // a test server's own address
	}
	return endpoint
}

func (s *fakeServer) set(broken bool, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken, s.token = broken, token
}

// requests is how many there were for a path.
func (s *fakeServer) requests(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}
