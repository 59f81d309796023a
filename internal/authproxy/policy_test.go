package authproxy

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/authorization"
	"github.com/fixpoint-dev/fixpoint/internal/callpolicy"
)

func newPolicy(t *testing.T, opts callpolicy.Options) func(http.Handler) http.Handler {
	t.Helper()
	policy, err := callpolicy.New(opts)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return policy.Protect
}

// connect returns a session of an unmodified client of the SDK.
func connect(t *testing.T, g *WithT, front, version string, client *http.Client) *mcp.ClientSession {
	t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: front + "/mcp", MaxRetries: -1, HTTPClient: client,
	}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = session.Close() })
	g.Expect(session.InitializeResult().ProtocolVersion).To(Equal(version))
	return session
}

// generations are the versions of the specification, and whether their servers have no sessions.
var generations = map[string]bool{"2025-06-18": false, "2025-11-25": false, "2026-07-28": true}

// pagedServer is an unmodified server of the SDK that lists one tool per page, for a minute.
func pagedServer(stateless bool, called *atomic.Int32, stop <-chan struct{}) http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, &mcp.ServerOptions{PageSize: 1})
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			result, err := next(ctx, method, r)
			if list, ok := result.(*mcp.ListToolsResult); ok {
				list.TTLMs, list.CacheScope = 60_000, "public"
			}
			return result, err
		}
	})
	for _, name := range []string{"delete_all", "delete_one", "get", "slow"} {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(ctx context.Context, _ *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, none, error) {
			called.Add(1)
			if name == "slow" {
				select {
				case <-ctx.Done():
				case <-stop: // a server without sessions need not end a call whose client has left
				}
			}
			return &mcp.CallToolResult{}, none{}, nil
		})
	}
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: stateless})
}

func TestClientsOfTheSDKGetOnlySelectedTools(t *testing.T) {
	for version, stateless := range generations {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			var called atomic.Int32
			_, front, _ := newProxy(t, pagedServer(stateless, &called, nil), newPolicy(t, callpolicy.Options{Allow: []string{"delete_*", "get"}, Deny: []string{"*_all"}}))
			session := connect(t, g, front, version, http.DefaultClient)

			var names []string
			pages, cursor := 0, ""
			for {
				page, err := session.ListTools(t.Context(), &mcp.ListToolsParams{Cursor: cursor})
				g.Expect(err).NotTo(HaveOccurred())
				for _, tool := range page.Tools {
					names = append(names, tool.Name)
				}
				if stateless {
					g.Expect(page.TTLMs).To(Equal(60_000))
					g.Expect(page.CacheScope).To(Equal("public"))
				}
				pages++
				if cursor = page.NextCursor; cursor == "" {
					break
				}
			}
			g.Expect(names).To(Equal([]string{"delete_one", "get"}))
			g.Expect(pages).To(Equal(4), "the cursors are those of the server")

			for _, hidden := range []string{"delete_all", "slow"} {
				_, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: hidden})
				g.Expect(err).To(MatchError(ContainSubstring("Unknown tool: " + hidden)))
			}
			g.Expect(called.Load()).To(BeZero())
			_, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "get"})
			g.Expect(err).NotTo(HaveOccurred(), "the session continues")
			g.Expect(called.Load()).To(BeEquivalentTo(1))
		})
	}
}

func TestClientsOfTheSDKHaveLimits(t *testing.T) {
	for version, stateless := range generations {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			var called atomic.Int32
			stop := make(chan struct{})
			through := func(opts callpolicy.Options) *mcp.ClientSession {
				_, front, _ := newProxy(t, pagedServer(stateless, &called, stop), newPolicy(t, opts))
				return connect(t, g, front, version, http.DefaultClient)
			}
			limited := through(callpolicy.Options{Tools: []callpolicy.ToolLimit{{Pattern: "get", CallsPerMinute: 1}}})
			// A proxy of its own, because the timeout is that of all calls.
			inTime := through(callpolicy.Options{CallTimeout: time.Second})
			t.Cleanup(func() { close(stop) })

			_, err := limited.CallTool(t.Context(), &mcp.CallToolParams{Name: "get"})
			g.Expect(err).NotTo(HaveOccurred())
			_, err = limited.CallTool(t.Context(), &mcp.CallToolParams{Name: "get"})
			g.Expect(err).To(MatchError(ContainSubstring("Too Many Requests")))
			_, err = inTime.CallTool(t.Context(), &mcp.CallToolParams{Name: "slow"})
			g.Expect(err).To(MatchError(ContainSubstring("took longer than the limit of 1s")))
			for _, session := range []*mcp.ClientSession{limited, inTime} {
				_, err = session.ListTools(t.Context(), nil)
				g.Expect(err).NotTo(HaveOccurred(), "the session continues")
			}
		})
	}
}

// A caller with a token has one limit in all of its sessions.
func TestLimitsOfCallersWithTokens(t *testing.T) {
	g := NewWithT(t)
	authorizer, token := newProtected(t)
	protect := newPolicy(t, callpolicy.Options{Tools: []callpolicy.ToolLimit{{Pattern: "*", CallsPerMinute: 1}}, Caller: authorization.Caller})
	_, front, _ := newProxy(t, newSDKServer(true), func(next http.Handler) http.Handler { return authorizer.Protect(protect(next)) })
	client := &http.Client{Transport: bearing(token("mcp"))}

	_, err := connect(t, g, front, "2026-07-28", client).CallTool(t.Context(), &mcp.CallToolParams{Name: "whoami"})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = connect(t, g, front, "2026-07-28", client).CallTool(t.Context(), &mcp.CallToolParams{Name: "whoami"})
	g.Expect(err).To(MatchError(ContainSubstring("Too Many Requests")))
}

func TestBodiesOfUnknownLength(t *testing.T) {
	g := NewWithT(t)
	_, front, _ := newProxy(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }),
		newPolicy(t, callpolicy.Options{MaxBodyBytes: 1000}))
	post := func(size int) (int, string) {
		response, err := http.Post(front, "application/json", io.MultiReader(strings.NewReader(strings.Repeat(" ", size))))
		g.Expect(err).NotTo(HaveOccurred())
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		g.Expect(err).NotTo(HaveOccurred())
		return response.StatusCode, string(body)
	}
	code, _ := post(1000)
	g.Expect(code).To(Equal(http.StatusOK))
	code, body := post(1001)
	g.Expect(code).To(Equal(http.StatusRequestEntityTooLarge))
	g.Expect(body).To(ContainSubstring("limit of 1000 bytes"))
}

func TestConnectionsAreNotUpgraded(t *testing.T) {
	g := NewWithT(t)
	_, front, _ := newProxy(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header["Upgrade"])+len(r.Header["Connection"]) > 0 {
			w.WriteHeader(http.StatusSwitchingProtocols)
		}
	}), open)
	request, err := http.NewRequest(http.MethodGet, front, http.NoBody)
	g.Expect(err).NotTo(HaveOccurred())
	request.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
	response, err := http.DefaultClient.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	g.Expect(response.StatusCode).To(Equal(http.StatusOK))
}
