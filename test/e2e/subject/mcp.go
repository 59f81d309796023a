package main

import (
	"context"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// answer is the result of the tool: the pod, and the number of calls in the session.
type answer struct {
	Pod    string `json:"pod"`
	Calls  int64  `json:"calls"`
	Secret string `json:"secret,omitempty"`
}

type nothing struct{}

// newServer returns a server for one session.
func newServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "subject", Version: "1.0.0"}, nil)
	var calls atomic.Int64
	mcp.AddTool(server, &mcp.Tool{Name: "count", Description: "Counts the calls of the session."},
		func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, answer, error) {
			return nil, answer{Pod: hostname(), Calls: calls.Add(1), Secret: os.Getenv("SECRET")}, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "eat", Description: "Takes memory until it is killed."},
		func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, answer, error) {
			eat()
			return nil, answer{}, nil
		})
	if name := os.Getenv("EXTRA_TOOL"); name != "" && changes.offersExtra() {
		mcp.AddTool(server, &mcp.Tool{Name: name, Description: "Another contract."},
			func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, answer, error) {
				return nil, answer{Pod: hostname()}, nil
			})
		server.AddReceivingMiddleware(changes.countLists)
	}
	return server
}

// changing is a server that changes its contract while it runs: with EXTRA_TOOL_LATER, it offers EXTRA_TOOL only after a
// request to /change. /lists responds with the times at which clients have listed the tools with EXTRA_TOOL among them.
type changing struct {
	mu      sync.Mutex
	changed bool
	lists   []time.Time
}

var changes changing

func (c *changing) offersExtra() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed || os.Getenv("EXTRA_TOOL_LATER") == ""
}

func (c *changing) countLists(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		if method == "tools/list" {
			c.mu.Lock()
			c.lists = append(c.lists, time.Now())
			c.mu.Unlock()
		}
		return next(ctx, method, request)
	}
}

func (c *changing) serveChange(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = true
	writeJSON(w, c.changed)
}

func (c *changing) serveLists(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	writeJSON(w, c.lists)
}

func serveStdio(ctx context.Context) error {
	// One call of more than a million, of a process without timers that was otherwise idle, took 60.006 s. The monitor of the
	// Go runtime (1.26.8) sleeps for 60 s in such a process, and a timer wakes it before.
	go func() {
		for range time.Tick(time.Second) {
			continue
		}
	}()
	return newServer().Run(ctx, &mcp.StdioTransport{})
}

func serveStreamable(ctx context.Context) error {
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return newServer() }, &mcp.StreamableHTTPOptions{
		Stateless: os.Getenv("STATELESS") != "",
		// A stream ends after its response, and a fast client opens another connection in between.
		JSONResponse: true,
	})
	routes := http.NewServeMux()
	routes.Handle("/", withToken(handler))
	routes.HandleFunc("GET /change", changes.serveChange)
	routes.HandleFunc("GET /lists", changes.serveLists)
	return serve(ctx, port("8080"), routes, 0)
}

// withToken requires the bearer token in REQUIRED_TOKEN, if that is set.
func withToken(handler http.Handler) http.Handler {
	token := os.Getenv("REQUIRED_TOKEN")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token != "" && r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "a token is required", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

func serveSSE(ctx context.Context) error {
	return serve(ctx, port("3001"), mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return newServer() }, nil), 0)
}
