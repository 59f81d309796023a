package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// outside is what the samples need beside a cluster: a cloud, and, since no pod really runs on
// simulated nodes, a server of the Model Context Protocol that answers in place of theirs.
type outside struct {
	cloud    *fakecloud.Server
	endpoint *fakecloud.Endpoint
	server   *http.Server
	mcpURL   string
}

// compressed makes the cloud behave like a cloud, only a hundred times as fast.
const compressed = "realistic/100"

func startOutside() (*outside, error) {
	knobs, err := fakecloud.Preset(compressed)
	if err != nil {
		return nil, fmt.Errorf("starting the fake cloud: %w", err)
	}
	o := &outside{cloud: fakecloud.New(fakecloud.Options{Knobs: knobs, Seed: 1})}
	o.cloud.SeedDemo()
	o.endpoint = o.cloud.StartHTTP()
	if err := o.serveMCP(); err != nil {
		o.stop()
		return nil, err
	}
	return o, nil
}

func (o *outside) serveMCP() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("starting the MCP server: %w", err)
	}
	answers := mcp.NewServer(&mcp.Implementation{Name: "sample", Version: "1.0.0"}, nil)
	type nothing struct{}
	mcp.AddTool(answers, &mcp.Tool{Name: "hello", Description: "Says hello."},
		func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, nothing, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hello"}}}, nothing{}, nil
		})
	serve := func(*http.Request) *mcp.Server { return answers }
	paths := http.NewServeMux()
	paths.Handle("/sse", mcp.NewSSEHandler(serve, nil))
	paths.Handle("/", mcp.NewStreamableHTTPHandler(serve, nil))
	o.server = &http.Server{Handler: paths, ReadHeaderTimeout: 10 * time.Second}
	o.mcpURL = "http://" + listener.Addr().String()
	go func() { _ = o.server.Serve(listener) }()
	return nil
}

// flags are what the manager has to know of it.
func (o *outside) flags() []string {
	return []string{
		"--cloud-endpoint=" + o.endpoint.URL,
		"--cloud-token=" + fakecloud.Token("manager"),
		"--mcp-probe-endpoint=" + o.mcpURL,
	}
}

func (o *outside) stop() {
	if o.server != nil {
		_ = o.server.Close()
	}
	o.endpoint.Close()
	_ = o.cloud.Close()
}
