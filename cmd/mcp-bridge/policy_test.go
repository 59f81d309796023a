package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/callpolicy"
)

// toolsMarker is the first argument that makes the test binary run as a server of the SDK with tools.
const toolsMarker = "be-tools"

// serveTools serves on stdio. The tool slow ends when its call is cancelled, and reports that.
func serveTools() {
	server := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
	for _, name := range []string{"delete_all", "get", "slow"} {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			if name == "slow" {
				<-ctx.Done()
				fmt.Fprintln(os.Stderr, "the call was cancelled")
			}
			return &mcp.CallToolResult{}, nil, nil
		})
	}
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// Unmodified clients and an unmodified stdio server of the SDK.
func TestBridgeSelectsTools(t *testing.T) {
	g := NewWithT(t)
	self, err := os.Executable()
	g.Expect(err).NotTo(HaveOccurred())
	for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			connect := func(flags ...string) (*mcp.ClientSession, *output) {
				_, out, address, _ := serving(t, g, []string{self, toolsMarker}, flags...)
				session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
					&mcp.StreamableClientTransport{Endpoint: address + "/mcp", MaxRetries: -1}, &mcp.ClientSessionOptions{ProtocolVersion: version})
				g.Expect(err).NotTo(HaveOccurred())
				t.Cleanup(func() { _ = session.Close() })
				return session, out
			}
			session, _ := connect("-deny-tool", "delete_*", "-calls-per-minute", "get 1")
			g.Expect(session.InitializeResult().ProtocolVersion).To(Equal(version))

			listed, err := session.ListTools(t.Context(), nil)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(listed.Tools).To(HaveExactElements(HaveField("Name", "get"), HaveField("Name", "slow")))
			_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "delete_all"})
			g.Expect(err).To(MatchError(ContainSubstring("Unknown tool: delete_all")))
			_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "get"})
			g.Expect(err).NotTo(HaveOccurred())
			_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "get"})
			g.Expect(err).To(MatchError(ContainSubstring("Too Many Requests")))

			// The timeout is for all tools, and a call that succeeds may take as long on a busy machine.
			session, out := connect("-call-timeout", "1s")
			g.Eventually(func() string {
				_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "slow"})
				g.Expect(err).To(MatchError(ContainSubstring("took longer than the limit of 1s")))
				return out.String() // a call may end before it reaches the server
			}, testTimeout).Should(ContainSubstring("the call was cancelled"), "in the server, too")
			_, err = session.ListTools(t.Context(), nil)
			g.Expect(err).NotTo(HaveOccurred(), "the session continues")
		})
	}
}

func TestFlagsOfLimits(t *testing.T) {
	g := NewWithT(t)
	args := []string{
		"--requests-per-minute", "600", "--calls-per-minute", "delete_* 10", "--calls-per-minute", "* 100", "--max-concurrent-calls", "20",
		"--max-body-bytes", "65536", "--call-timeout", "30s", "--allow-tool", "get_*,delete_*", "--allow-tool", "set", "--deny-tool", "delete_all",
	}
	want := callpolicy.Options{
		RequestsPerMinute: 600, Tools: []callpolicy.ToolLimit{{Pattern: "delete_*", CallsPerMinute: 10}, {Pattern: "*", CallsPerMinute: 100}},
		MaxConcurrentCalls: 20, MaxBodyBytes: 65536, CallTimeout: 30 * time.Second, Allow: []string{"get_*", "delete_*", "set"}, Deny: []string{"delete_all"},
	}
	served, err := parse(append(args, "--", "true"), io.Discard)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(served.protection.policy.options).To(Equal(want))
	proxied, err := parseProxy(append(args, "--server-port", "8080"), io.Discard)
	g.Expect(err).NotTo(HaveOccurred(), "limits need no issuer")
	g.Expect(proxied.protection.policy.options).To(Equal(want))
}

func TestInvalidLimitsAreReported(t *testing.T) {
	for name, c := range map[string]struct {
		args    []string
		message string
	}{
		"neither issuer nor limits":  {nil, "-issuer"},
		"limits and half an issuer":  {[]string{"--requests-per-minute", "600", "--scopes", "mcp"}, "-issuer"},
		"calls without a number":     {[]string{"--calls-per-minute", "delete_*"}, "use a value such as"},
		"calls without a name":       {[]string{"--calls-per-minute", " 10"}, "use a value such as"},
		"requests without a number":  {[]string{"--requests-per-minute", "many"}, "invalid value"},
		"a timeout without its unit": {[]string{"--call-timeout", "10"}, "invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseProxy(append(c.args, "--server-port", "8080"), io.Discard)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(c.message)))
		})
	}
	flags := &protectionFlags{policy: policyFlags{options: callpolicy.Options{RequestsPerMinute: 1, CallTimeout: -1}}}
	_, err := newProtection(io.Discard, newLogger(io.Discard, 0), flags, 0)
	NewWithT(t).Expect(err).To(HaveOccurred())
}

// The second request of a minute is refused, whether or not the first one reaches the server.
func TestProxyAppliesLimits(t *testing.T) {
	g := NewWithT(t)
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "{}") }))
	defer behind.Close()
	for message, contentType := range map[string]string{pingMessage: "text/plain; charset=utf-8", deleteMessage: "application/json"} {
		_, _, address, admin := proxying(t, g, behind.URL, "-requests-per-minute", "1", "-deny-tool", "delete_*")
		code, header := send(g, address, message, "", "")
		g.Expect(code).To(Equal(http.StatusOK))
		g.Expect(header.Get("Content-Type")).To(Equal(contentType))
		code, header = send(g, address, pingMessage, "", "")
		g.Expect(code).To(Equal(http.StatusTooManyRequests))
		g.Expect(header.Get("Retry-After")).NotTo(BeEmpty())
		g.Expect(status(admin+"/readyz")).To(Equal(http.StatusOK), "it has no limits")
	}
}

func TestBridgeAppliesLimits(t *testing.T) {
	g := NewWithT(t)
	_, _, address, _ := serving(t, g, tiny, "-calls-per-minute", "delete_* 1", "-max-body-bytes", "1024")
	code, header := send(g, address, initializeMessage, "", "")
	g.Expect(code).To(Equal(http.StatusOK))
	session := header.Get("Mcp-Session-Id")
	code, _ = send(g, address, deleteMessage, "", session)
	g.Expect(code).To(Equal(http.StatusOK))
	code, _ = send(g, address, deleteMessage, "", session)
	g.Expect(code).To(Equal(http.StatusTooManyRequests))
	code, _ = send(g, address, pingMessage+fmt.Sprintf("%1024s", ""), "", session)
	g.Expect(code).To(Equal(http.StatusRequestEntityTooLarge))
}
