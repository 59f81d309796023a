package deploy

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// compressed makes the cloud behave like a cloud, only a hundred times as fast.
const compressed = "realistic/100"

// Outside is what a manager needs beside a cluster whose nodes are simulated: a cloud, and a server of
// the Model Context Protocol that answers in place of those that no node runs.
type Outside struct {
	Cloud    *fakecloud.Server
	Demo     fakecloud.Demo
	endpoint *fakecloud.Endpoint
	server   *httptest.Server
}

// StartOutside starts both.
func StartOutside() (*Outside, error) {
	knobs, err := fakecloud.Preset(compressed)
	if err != nil {
		return nil, fmt.Errorf("starting the fake cloud: %w", err)
	}
	o := &Outside{Cloud: fakecloud.New(fakecloud.Options{Knobs: knobs, Seed: 1})}
	o.Demo = o.Cloud.SeedDemo()
	o.endpoint = o.Cloud.StartHTTP()
	answers := mcp.NewServer(&mcp.Implementation{Name: "stand-in", Version: "1.0.0"}, nil)
	type nothing struct{}
	mcp.AddTool(answers, &mcp.Tool{Name: "hello"}, func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, nothing, error) {
		return &mcp.CallToolResult{}, nothing{}, nil
	})
	serve := func(*http.Request) *mcp.Server { return answers }
	paths := http.NewServeMux()
	paths.Handle("/sse", mcp.NewSSEHandler(serve, nil))
	paths.Handle("/", mcp.NewStreamableHTTPHandler(serve, nil))
	o.server = httptest.NewServer(paths)
	return o, nil
}

// Arguments are what the manager has to know of it.
func (o *Outside) Arguments() []string {
	return []string{
		"--cloud-endpoint=" + o.endpoint.URL,
		"--cloud-token=" + fakecloud.Token("manager"),
		"--mcp-probe-endpoint=" + o.server.URL,
	}
}

// Stop ends both.
func (o *Outside) Stop() {
	o.server.CloseClientConnections()
	o.server.Close()
	o.endpoint.Close()
	_ = o.Cloud.Close()
}
