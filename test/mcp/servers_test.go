//nolint:staticcheck // Sampling and logging are deprecated, and in use by every server of an older spec version.
package mcp

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
)

// connect opens a session with the official SDK's client.
func connect(t *testing.T, g *WithT, url string, options *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "fixpoint-test", Version: "1"}, options)
	s, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func call(ctx context.Context, g *WithT, s *mcp.ClientSession, tool string, arguments map[string]any) string {
	res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(res.IsError).To(BeFalse(), "%s failed: %v", tool, res.Content)
	var said strings.Builder
	for _, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			said.WriteString(text.Text)
		}
	}
	return said.String()
}

func TestEverythingServer(t *testing.T) {
	g, b := given(t)
	url := bridged(t, g, b, nil, node(), packageFile(g, "server-everything", "dist", "index.js"), "stdio")
	heard := make(chan float64, 100)
	s := connect(t, g, url, &mcp.ClientOptions{
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Model: "test", Role: "assistant", Content: &mcp.TextContent{Text: "sampled here"}}, nil
		},
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { heard <- r.Params.Progress },
	})

	g.Expect(s.InitializeResult().ServerInfo.Name).NotTo(BeEmpty())
	g.Expect(call(t.Context(), g, s, "echo", map[string]any{"message": "hello"})).To(ContainSubstring("hello"))
	g.Expect(call(t.Context(), g, s, "trigger-sampling-request", map[string]any{"prompt": "say", "maxTokens": 5})).To(ContainSubstring("sampled here"))
	g.Expect(call(t.Context(), g, s, "trigger-elicitation-request", map[string]any{})).NotTo(BeEmpty())

	long := &mcp.CallToolParams{Name: "trigger-long-running-operation", Arguments: map[string]any{"duration": 0.3, "steps": 3}}
	long.SetProgressToken("p")
	_, err := s.CallTool(t.Context(), long)
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(heard).Should(Receive(Equal(3.0)))

	prompts, err := s.ListPrompts(t.Context(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(prompts.Prompts).NotTo(BeEmpty())
	resources, err := s.ListResources(t.Context(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(resources.Resources).NotTo(BeEmpty())
}

func TestFilesystemServer(t *testing.T) {
	g, b := given(t)
	shared := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(shared, "note.txt"), []byte("written down"), 0o644)).To(Succeed())
	url := bridged(t, g, b, nil, node(), packageFile(g, "server-filesystem", "dist", "index.js"), shared)
	s := connect(t, g, url, nil)
	g.Expect(call(t.Context(), g, s, "read_text_file", map[string]any{"path": filepath.Join(shared, "note.txt")})).To(ContainSubstring("written down"))
	call(t.Context(), g, s, "write_file", map[string]any{"path": filepath.Join(shared, "new.txt"), "content": "from a client"})
	g.Expect(os.ReadFile(filepath.Join(shared, "new.txt"))).To(Equal([]byte("from a client")))
}

func TestMemoryServer(t *testing.T) {
	g, b := given(t)
	t.Setenv("MEMORY_FILE_PATH", filepath.Join(t.TempDir(), "memory.jsonl"))
	url := bridged(t, g, b, nil, node(), packageFile(g, "server-memory", "dist", "index.js"))
	s := connect(t, g, url, nil)
	call(t.Context(), g, s, "create_entities", map[string]any{"entities": []map[string]any{
		{"name": "Fixpoint", "entityType": "operator", "observations": []string{"reaches what is declared"}},
	}})
	// Another session, and so another process, on the same file.
	other := connect(t, g, url, nil)
	g.Expect(call(t.Context(), g, other, "read_graph", map[string]any{})).To(ContainSubstring("reaches what is declared"))
}
