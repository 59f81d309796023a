//nolint:staticcheck // Sampling and logging are deprecated, and in use by every server of an older spec version.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
)

var versions = []string{"2025-06-18", "2025-11-25", "2026-07-28"}

func TestRelaysEveryVersion(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			w := newTestBridge(t, server("sdk"))
			var mu sync.Mutex
			var progress []float64
			s := w.connect(client{version: version, options: mcp.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
					mu.Lock()
					defer mu.Unlock()
					progress = append(progress, r.Params.Progress)
				},
				ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "you said " + r.Params.Message}}, nil
				},
			}})
			w.Expect(s.InitializeResult().ProtocolVersion).To(Equal(version))
			w.Expect(s.InitializeResult().ServerInfo.Name).To(Equal("played"))

			w.Expect(callTool(t.Context(), s, "echo", toolInput{Text: "<&> \u2028 ünïcode \n"})).To(Equal("<&> \u2028 ünïcode \n"))
			w.Expect(callTool(t.Context(), s, "elicit", toolInput{Text: "who?"})).To(ContainSubstring("you said who?"))
			_, err := callTool(t.Context(), s, "no such tool", toolInput{})
			w.Expect(err).To(MatchError(ContainSubstring("no such tool")))

			params := &mcp.CallToolParams{Name: "progress", Arguments: toolInput{Count: 5}}
			params.SetProgressToken("a token")
			_, err = s.CallTool(t.Context(), params)
			w.Expect(err).NotTo(HaveOccurred())
			w.Eventually(func() []float64 { mu.Lock(); defer mu.Unlock(); return progress }).Should(Equal([]float64{0, 1, 2, 3, 4}))
		})
	}
}

func TestServerRequestsAndNotifications(t *testing.T) {
	for _, quiet := range []bool{false, true} {
		t.Run("withoutStandaloneStream="+strconv.FormatBool(quiet), func(t *testing.T) {
			w := newTestBridge(t, server("sdk"))
			changed := make(chan struct{}, 10)
			logged := make(chan any, 10)
			s := w.connect(client{version: "2025-11-25", quiet: quiet, options: mcp.ClientOptions{
				CreateMessageHandler: func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
					asked, ok := r.Params.Messages[0].Content.(*mcp.TextContent)
					if !ok {
						return nil, context.Canceled
					}
					return &mcp.CreateMessageResult{Model: "m", Role: "assistant", Content: &mcp.TextContent{Text: "sampled " + asked.Text}}, nil
				},
				ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
				LoggingMessageHandler:  func(_ context.Context, r *mcp.LoggingMessageRequest) { logged <- r.Params.Data },
			}})
			w.Expect(callTool(t.Context(), s, "sample", toolInput{Text: "this"})).To(Equal("sampled this"))

			w.Expect(s.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "debug"})).To(Succeed())
			w.Expect(callTool(t.Context(), s, "logs", toolInput{Text: "a log message"})).To(BeEmpty())
			w.Eventually(logged).Should(Receive(Equal("a log message")))

			w.Expect(callTool(t.Context(), s, "grow", toolInput{})).To(BeEmpty())
			// Without a standalone stream it is sent with the next request.
			w.Eventually(func() error { return s.Ping(t.Context(), nil) }).Should(Succeed())
			w.Eventually(func(g Gomega) {
				g.Expect(s.Ping(t.Context(), nil)).To(Succeed())
				g.Expect(changed).To(Receive())
			}).Should(Succeed())
		})
	}
}

// A Service routes no new connections to a terminating pod, so a session needs its existing ones. With a
// Content-Length a client knows immediately that it can reuse the connection.
func TestSequentialCallsReuseOneConnection(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			w := newTestBridge(t, server("sdk"))
			var dialed atomic.Int64
			transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				dialed.Add(1)
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}}
			t.Cleanup(transport.CloseIdleConnections)
			s := w.connect(client{version: version, quiet: true, transport: transport})
			w.Expect(callTool(t.Context(), s, "echo", toolInput{Text: "short"})).To(Equal("short"))

			// A client that is paused for 50 ms opens another connection.
			w.Eventually(func() int64 {
				before := dialed.Load()
				for _, length := range []int{1, 1000, 2 << 10, 4 << 10, 100 << 10, 1 << 20, 1} {
					text := strings.Repeat("x", length)
					w.Expect(callTool(t.Context(), s, "echo", toolInput{Text: text})).To(Equal(text))
				}
				return dialed.Load() - before
			}).Should(BeZero())
		})
	}
}

func TestSingleResponseHasContentLength(t *testing.T) {
	w := newTestBridge(t, server("sdk"))
	id := w.session()
	for _, length := range []int{10, 100 << 10} {
		call := fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"big","arguments":{"count":%d}}}`, length)

		resp := w.open(http.MethodPost, call, headerSession, id)

		body, err := io.ReadAll(resp.Body)
		w.Expect(errors.Join(err, resp.Body.Close())).To(Succeed())
		w.Expect(len(body)).To(BeNumerically(">", length))
		w.Expect(resp.ContentLength).To(BeEquivalentTo(len(body)))
		w.Expect(resp.Header.Get("Content-Type")).To(Equal(eventType))
	}
}

func TestEachSessionHasItsOwnChild(t *testing.T) {
	w := newTestBridge(t, server("sdk"))
	t.Setenv("FIXPOINT_BRIDGE_TEST", "inherited")
	one, two := w.connect(client{version: "2025-11-25"}), w.connect(client{version: "2025-06-18"})
	w.Expect(callTool(t.Context(), one, "count", toolInput{})).To(Equal("1"))
	w.Expect(callTool(t.Context(), one, "count", toolInput{})).To(Equal("2"))
	w.Expect(callTool(t.Context(), two, "count", toolInput{})).To(Equal("1"))
	w.Expect(callTool(t.Context(), two, "environment", toolInput{Text: "FIXPOINT_BRIDGE_TEST"})).To(Equal("inherited"))
	w.Expect(w.metric("sessions")).To(Equal(2.0))

	w.Expect(one.Close()).To(Succeed())
	w.Eventually(func() float64 { return w.metric("children") }).Should(Equal(1.0))
	w.Eventually(func() float64 { return w.metric("sessions_ended_total", reasonDeleted) }).Should(Equal(1.0))
	w.Expect(w.metric("child_crashes_total")).To(BeZero())
}

func TestStatelessClientsShareAChild(t *testing.T) {
	w := newTestBridge(t, server("sdk"))
	const clients = 8
	var done sync.WaitGroup
	for range clients {
		s := w.connect(client{version: "2026-07-28"})
		done.Go(func() {
			for range 10 {
				_, err := callTool(t.Context(), s, "count", toolInput{})
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
			}
		})
	}
	done.Wait()
	s := w.connect(client{version: "2026-07-28"})
	w.Expect(callTool(t.Context(), s, "count", toolInput{})).To(Equal(strconv.Itoa(clients*10 + 1)))
	w.Expect(w.metric("sessions_started_total")).To(BeZero())
	w.Expect(s.ID()).To(BeEmpty())
}

func TestStatelessProgressReachesItsClient(t *testing.T) {
	w := newTestBridge(t, server("sdk"))
	var done sync.WaitGroup
	for i := range 6 {
		var mu sync.Mutex
		var heard []string
		s := w.connect(client{version: "2026-07-28", options: mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
				mu.Lock()
				defer mu.Unlock()
				heard = append(heard, r.Params.Message)
			},
		}})
		done.Go(func() {
			g := NewWithT(t)
			me := strconv.Itoa(i)
			params := &mcp.CallToolParams{Name: "progress", Arguments: toolInput{Count: 20, Text: me}}
			params.SetProgressToken("same for all")
			_, err := s.CallTool(t.Context(), params)
			g.Expect(err).NotTo(HaveOccurred())
			g.Eventually(func() []string { mu.Lock(); defer mu.Unlock(); return heard }, testTimeout).Should(HaveLen(20))
			g.Expect(heard).To(HaveEach(me))
		})
	}
	done.Wait()
}

func TestStatelessSubscription(t *testing.T) {
	w := newTestBridge(t, server("sdk"))
	changed := make(chan struct{}, 10)
	_ = w.connect(client{version: "2026-07-28", options: mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
	}})
	other := w.connect(client{version: "2026-07-28"})
	w.Expect(callTool(t.Context(), other, "grow", toolInput{})).To(BeEmpty())
	w.Eventually(changed).Should(Receive())
}

func TestCancellation(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			w := newTestBridge(t, server("sdk"))
			s := w.connect(client{version: version})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := callTool(ctx, s, "hang", toolInput{Text: "here"})
				done <- err
			}()
			w.Eventually(w.logs.String).Should(ContainSubstring("hanging here"))
			cancel()
			w.Eventually(done).Should(Receive(HaveOccurred()))
			w.Eventually(w.logs.String).Should(ContainSubstring("cancelled here"))
			w.Expect(callTool(t.Context(), s, "echo", toolInput{Text: "goes on"})).To(Equal("goes on"))
		})
	}
}

func TestNewClientsFallBackForOldServers(t *testing.T) {
	t.Parallel()
	for _, behaviour := range []string{"sessions-only", "deaf-to-discover"} {
		t.Run(behaviour, func(t *testing.T) {
			w := newTestBridge(t, server(behaviour))
			s := w.connect(client{})
			w.Expect(s.InitializeResult().ProtocolVersion).To(Equal("2025-11-25"))
			w.Expect(s.ID()).NotTo(BeEmpty())
		})
	}
}
