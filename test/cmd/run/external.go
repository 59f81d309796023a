package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// externalServices run beside the cluster: the fake cloud, and an MCP server that answers for the
// MCPServers of the samples, because simulated nodes run no containers.
type externalServices struct {
	cloud    *fakecloud.Server
	demo     fakecloud.Demo
	endpoint *fakecloud.Endpoint
	server   *http.Server
	mcpURL   string
}

// cloudPreset has realistic delays, divided by 100.
const cloudPreset = "realistic/100"

func startExternal() (*externalServices, error) {
	knobs, err := fakecloud.Preset(cloudPreset)
	if err != nil {
		return nil, fmt.Errorf("starting the fake cloud: %w", err)
	}
	e := &externalServices{cloud: fakecloud.New(fakecloud.Options{Knobs: knobs, Seed: 1})}
	e.demo = e.cloud.SeedDemo()
	e.endpoint = e.cloud.StartHTTP()
	if err := e.serveMCP(); err != nil {
		e.stop()
		return nil, err
	}
	return e, nil
}

func (e *externalServices) serveMCP() error {
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
	e.server = &http.Server{Handler: paths, ReadHeaderTimeout: 10 * time.Second}
	e.mcpURL = "http://" + listener.Addr().String()
	go func() { _ = e.server.Serve(listener) }()
	return nil
}

// flags point the manager to the services. The samples use the credential of the manager, so all
// namespaces may use it in the resource group of the fake cloud. The token is written to dir.
func (e *externalServices) flags(dir string) ([]string, error) {
	token, err := fakecloud.WriteToken(dir, "manager")
	if err != nil {
		return nil, err
	}
	return []string{
		"--cloud-endpoint=" + e.endpoint.URL,
		"--cloud-token-file=" + token,
		"--ambient-credentials=" + securestorage.AllNamespaces + "=" + e.demo.GroupID(),
		"--mcp-probe-endpoint=" + e.mcpURL,
	}, nil
}

func (e *externalServices) stop() {
	if e.server != nil {
		_ = e.server.Close()
	}
	e.endpoint.Close()
	_ = e.cloud.Close()
}
