package main

import (
	"context"
	"net/http"
	"os"
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
	if name := os.Getenv("EXTRA_TOOL"); name != "" && time.Since(started) >= extraToolAfter() {
		mcp.AddTool(server, &mcp.Tool{Name: name, Description: "Another contract."},
			func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, answer, error) {
				return nil, answer{Pod: hostname()}, nil
			})
	}
	return server
}

// started is when the process started.
var started = time.Now()

// extraToolAfter is how long after the start the server offers EXTRA_TOOL, so that it changes its contract while it runs.
func extraToolAfter() time.Duration {
	after, _ := time.ParseDuration(os.Getenv("EXTRA_TOOL_AFTER"))
	return after
}

func serveStdio(ctx context.Context) error {
	return newServer().Run(ctx, &mcp.StdioTransport{})
}

func serveStreamable(ctx context.Context) error {
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return newServer() }, &mcp.StreamableHTTPOptions{
		Stateless: os.Getenv("STATELESS") != "",
		// A stream ends after its response, and a fast client opens another connection in between.
		JSONResponse: true,
	})
	return serve(ctx, port("8080"), withToken(handler), 0)
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
