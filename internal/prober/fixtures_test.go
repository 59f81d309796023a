package prober

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fixpoint-dev/fixpoint/internal/pipetest"
)

// testTimeout is for a busy machine and the race detector.
const testTimeout = 2 * time.Minute

// newServer returns a server with two tools, one prompt and one resource.
func newServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "everything", Version: "1.2.3"}, nil)
	for _, name := range []string{"add", "echo"} {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{}, nil, nil
		})
	}
	server.AddPrompt(&mcp.Prompt{Name: "greet"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{}, nil
	})
	server.AddResource(&mcp.Resource{Name: "readme", URI: "file:///readme"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{}, nil
	})
	return server
}

func streamable(server *mcp.Server, options *mcp.StreamableHTTPOptions) http.Handler {
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, options)
}

func serve(t *testing.T, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

// bubbled is the URL of a server in a bubble.
const bubbled = "http://web.default.svc"

// serveInBubble serves a handler in a bubble, and returns what dials it. A goroutine that a test leaves in its bubble fails it.
func serveInBubble(t *testing.T, handler http.Handler) (dial func(context.Context, string, string) (net.Conn, error)) {
	t.Helper()
	network := pipetest.Listen()
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(network) }()
	t.Cleanup(func() { _ = server.Close() })
	return network.Dial
}

func newProber(t *testing.T, options Options) *Prober {
	t.Helper()
	p, err := New(options)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return p
}

// start runs the prober until the test ends.
func start(t *testing.T, p *Prober) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(log.IntoContext(t.Context(), logr.Discard()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.Start(ctx)
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return stop
}

// probeOnce runs one full probe, with the longest timeout unless the target has one.
func probeOnce(t *testing.T, target Target, change ...func(*job)) answer {
	t.Helper()
	return probeWith(t, Options{}, target, change...)
}

func probeWith(t *testing.T, options Options, target Target, change ...func(*job)) answer {
	t.Helper()
	return probeBy(t, newProber(t, options), target, change...)
}

func probeBy(t *testing.T, p *Prober, target Target, change ...func(*job)) answer {
	t.Helper()
	if target.Timeout == 0 {
		target.Timeout, target.Interval = testTimeout, testTimeout
	}
	e := &entry{target: target.complete(), namespace: p.joinNamespace("default")}
	e.prepare(nil)
	p.updateMembers(e)
	j := p.job(e.members[0], time.Now())
	for _, c := range change {
		c(&j)
	}
	return p.handshake(t.Context(), j)
}

func name(s string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: s}
}

func hostOf(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return u.Host
}

func sessionsOf(server *mcp.Server) int {
	return len(slices.Collect(server.Sessions()))
}

// expectNoLeak fails a test that leaks goroutines. Call it first.
func expectNoLeak(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		g := NewWithT(t)
		g.Eventually(runtime.NumGoroutine).WithTimeout(testTimeout).Should(BeNumerically("<=", before), func() string {
			stacks := make([]byte, 1<<20)
			return string(stacks[:runtime.Stack(stacks, true)])
		})
	})
}
