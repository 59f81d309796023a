package mcpserver_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// standIn is a server of the Model Context Protocol that answers in place of all that the managers
// of a test probe.
type standIn struct {
	http *httptest.Server

	mu sync.Mutex
	// broken servers answer every request with an error.
	broken bool
	// token, if there is one, is what a request has to carry.
	token string
	asked map[string]int
}

func newStandIn(t *testing.T) *standIn {
	t.Helper()
	answers := mcp.NewServer(&mcp.Implementation{Name: "stand-in", Version: "1.2.3"}, nil)
	type nothing struct{}
	for _, name := range []string{"one", "two"} {
		mcp.AddTool(answers, &mcp.Tool{Name: name}, func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, nothing, error) {
			return &mcp.CallToolResult{}, nothing{}, nil
		})
	}
	serve := func(*http.Request) *mcp.Server { return answers }
	paths := http.NewServeMux()
	paths.Handle("/sse", mcp.NewSSEHandler(serve, nil))
	paths.Handle("/", mcp.NewStreamableHTTPHandler(serve, nil))
	s := &standIn{asked: map[string]int{}}
	s.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status := s.refuses(r); status != 0 {
			w.WriteHeader(status)
			return
		}
		paths.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

func (s *standIn) refuses(r *http.Request) (status int) {
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

func (s *standIn) endpoint() *url.URL {
	endpoint, err := url.Parse(s.http.URL)
	if err != nil {
		panic(err) // a test server's own address
	}
	return endpoint
}

func (s *standIn) set(broken bool, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken, s.token = broken, token
}

// requests is how many there were for a path.
func (s *standIn) requests(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}
