package deploy

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
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
	served   atomic.Int64
	dir      string
}

// MCPRequests is the number of requests to the server of the Model Context Protocol so far.
func (o *Outside) MCPRequests() int64 { return o.served.Load() }

// StartOutside starts both.
func StartOutside() (*Outside, error) {
	knobs, err := fakecloud.Preset(compressed)
	if err != nil {
		return nil, fmt.Errorf("starting the fake cloud: %w", err)
	}
	dir, err := os.MkdirTemp("", "fixpoint-outside-")
	if err != nil {
		return nil, fmt.Errorf("creating a directory for the token: %w", err)
	}
	o := &Outside{Cloud: fakecloud.New(fakecloud.Options{Knobs: knobs, Seed: 1}), dir: dir}
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
	o.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.served.Add(1)
		paths.ServeHTTP(w, r)
	}))
	return o, nil
}

// Arguments are the flags with which a manager uses both. A program from before --cloud-token-file takes
// the token itself.
func (o *Outside) Arguments(ctx context.Context, program string) ([]string, error) {
	arguments := []string{"--cloud-endpoint=" + o.endpoint.URL, "--mcp-probe-endpoint=" + o.server.URL}
	help, err := exec.CommandContext(ctx, program, "--help").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("asking %s for its flags: %w", program, err)
	}
	if !bytes.Contains(help, []byte("-cloud-token-file")) {
		return append(arguments, "--cloud-token="+fakecloud.Token("manager")), nil
	}
	token, err := fakecloud.WriteToken(o.dir, "manager")
	if err != nil {
		return nil, err
	}
	return append(arguments, "--cloud-token-file="+token, "--ambient-credentials="+securestorage.AllNamespaces+"="+o.Demo.GroupID()), nil
}

// Stop ends both.
func (o *Outside) Stop() {
	o.server.CloseClientConnections()
	o.server.Close()
	o.endpoint.Close()
	_ = o.Cloud.Close()
	_ = os.RemoveAll(o.dir)
}
