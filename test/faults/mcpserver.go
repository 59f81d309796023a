package faults

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ssePath is where the deprecated SSE transport answers, and everything below it; all other paths speak
// streamable HTTP.
const ssePath = "/sse"

// mcpServer answers MCP handshakes for the MCPServers of all environments, because no pods run.
type mcpServer struct {
	http *httptest.Server

	mu sync.Mutex
	// failing holds the namespaces whose servers return errors.
	failing map[string]bool
}

func newMCPServer() *mcpServer {
	server := mcp.NewServer(&mcp.Implementation{Name: "stand-in", Version: "1.2.3"}, nil)
	type nothing struct{}
	mcp.AddTool(server, &mcp.Tool{Name: "one"}, func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, nothing, error) {
		return &mcp.CallToolResult{}, nothing{}, nil
	})
	serve := func(*http.Request) *mcp.Server { return server }
	paths := http.NewServeMux()
	paths.Handle(ssePath, mcp.NewSSEHandler(serve, nil))
	paths.Handle(ssePath+"/", mcp.NewSSEHandler(serve, nil))
	paths.Handle("/", mcp.NewStreamableHTTPHandler(serve, nil))
	s := &mcpServer{failing: map[string]bool{}}
	s.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.isFailing(r.Host) {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		paths.ServeHTTP(w, r)
	}))
	return s
}

// isFailing takes a host such as web.NAMESPACE.svc:8080.
func (s *mcpServer) isFailing(host string) bool {
	const name, namespace = 0, 1
	parts := strings.Split(host, ".")
	if len(parts) <= namespace || parts[name] == "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failing[parts[namespace]]
}

func (s *mcpServer) setFailing(namespace string, broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing[namespace] = broken
}

func (s *mcpServer) endpoint() *url.URL {
	endpoint, err := url.Parse(s.http.URL)
	if err != nil {
		panic(err) // the URL of a test server is always valid
	}
	return endpoint
}

func (s *mcpServer) close() {
	s.http.CloseClientConnections()
	s.http.Close()
}

// FailMCPServers lets the MCP servers of the environment respond to every request with an error, or
// normally again.
func (env *Environment) FailMCPServers(broken bool) {
	env.Cluster.mcpServer.setFailing(env.Namespace, broken)
}
