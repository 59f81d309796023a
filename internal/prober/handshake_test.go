package prober

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
)

func TestHandshakeSucceeds(t *testing.T) {
	for name, test := range map[string]struct {
		handler func(*mcp.Server) http.Handler
		target  Target
		version string
		restart string
	}{
		"streamable, with sessions": {
			handler: func(s *mcp.Server) http.Handler { return streamable(s, nil) },
			version: "2025-11-25", restart: sessionVersion,
		},
		"streamable, stateless": {
			handler: func(s *mcp.Server) http.Handler {
				return streamable(s, &mcp.StreamableHTTPOptions{Stateless: true})
			},
			version: "2026-07-28",
		},
		"streamable, stateless, JSON": {
			handler: func(s *mcp.Server) http.Handler {
				return streamable(s, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
			},
			version: "2026-07-28",
		},
		"sse": {
			handler: func(s *mcp.Server) http.Handler {
				return mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return s }, nil)
			},
			target:  Target{Transport: SSE},
			version: "2025-11-25", restart: sessionVersion,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				server := newServer()
				options := Options{Dial: serveInBubble(t, test.handler(server))}
				test.target.URL = bubbled + "/mcp"

				found := probeWith(t, options, test.target)

				g.Expect(found).To(Equal(answer{
					server: Server{
						Name: "everything", Version: "1.2.3", ProtocolVersion: test.version,
						Capabilities: []string{"logging", "prompts", "resources", "tools"},
						Tools:        2, Prompts: 1, Resources: 1,
					},
					version: test.restart,
					listed:  true,
				}))
				synctest.Wait()
				g.Expect(sessionsOf(server)).To(BeZero())

				// The next probe is a short one with the same result.
				short := probeWith(t, options, test.target, func(j *job) { j.list, j.version = false, found.version })
				g.Expect(short.err).To(BeNil())
				g.Expect(short.server.sameIdentity(found.server)).To(BeTrue())
				synctest.Wait()
				g.Expect(sessionsOf(server)).To(BeZero())
			})
		})
	}
}

func TestShortProbesSendFewRequests(t *testing.T) {
	for name, test := range map[string]struct {
		options mcp.StreamableHTTPOptions
		version string
		then    []string
	}{
		"with sessions": {version: sessionVersion, then: []string{"POST", "POST", "DELETE"}},
		"stateless":     {options: mcp.StreamableHTTPOptions{Stateless: true}, then: []string{"POST"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				var requests []string
				handler := streamable(newServer(), &test.options)
				dial := serveInBubble(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					requests = append(requests, r.Method)
					handler.ServeHTTP(w, r)
				}))
				found := probeWith(t, Options{Dial: dial}, Target{URL: bubbled}, func(j *job) { j.list, j.version = false, test.version })
				synctest.Wait()
				g.Expect(found.err).To(BeNil())
				g.Expect(requests).To(Equal(test.then))
			})
		})
	}
}

func status(code int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "id 4711 at 12:00", code) })
}

func page(media, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", media)
		_, _ = io.WriteString(w, body)
	})
}

// rpc responds to every call with the given result or error.
func rpc(result string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct{ ID json.RawMessage }
		_ = json.NewDecoder(r.Body).Decode(&call)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, call.ID, result)
	})
}

func TestHandshakeFails(t *testing.T) {
	endlessBody := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for chunk := []byte(strings.Repeat(" ", 1<<16)); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	closesConnection := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, _ := http.NewResponseController(w).Hijack()
		_ = conn.Close()
	})
	truncatesBody := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"jsonrpc":`)
	})
	endsEarly := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
	})
	inChunks := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page("application/json", "{}").ServeHTTP(w, r)
		_ = http.NewResponseController(w).Flush()
	})
	redirectsEvents := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page("text/event-stream", "event: endpoint\ndata: http://elsewhere.example/m\n\n").ServeHTTP(w, r)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	refusesSessions := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case r.Header.Get(sessionHeader) != "":
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.Header().Set(sessionHeader, "session")
			rpc(`"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`).ServeHTTP(w, r)
		}
	})
	longHeaders := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", headerBytes))
	})
	for name, test := range map[string]struct {
		handler http.Handler
		sse     bool
		then    Error
		message string
	}{
		"401":                {handler: status(401), then: Error{Kind: Unauthorized, Status: 401}, message: "the server responded with 401 Unauthorized"},
		"401, sse":           {handler: status(401), sse: true, then: Error{Kind: Unauthorized, Status: 401}, message: "the server responded with 401 Unauthorized"},
		"401 in the session": {handler: refusesSessions, then: Error{Kind: Unauthorized, Status: 401}, message: "the server responded with 401 Unauthorized"},
		"403":                {handler: status(403), then: Error{Kind: Forbidden, Status: 403}, message: "the server responded with 403 Forbidden"},
		"404":                {handler: status(404), then: Error{Kind: HTTPStatus, Status: 404}, message: "the server responded with 404 Not Found"},
		"404, sse":           {handler: status(404), sse: true, then: Error{Kind: HTTPStatus, Status: 404}, message: "the server responded with 404 Not Found"},
		"503":                {handler: status(503), then: Error{Kind: HTTPStatus, Status: 503}, message: "the server responded with 503 Service Unavailable"},
		"a page":             {handler: page("text/html", "<h1>Welcome</h1>"), then: Error{Kind: NotMCP}, message: "the response is not MCP"},
		"a page, sse":        {handler: page("text/html", "<h1>Welcome</h1>"), sse: true, then: Error{Kind: NotMCP}, message: "the response is not MCP"},
		"other JSON":         {handler: page("application/json", `{"hello":"world"}`), then: Error{Kind: NotMCP}, message: "the response is not MCP"},
		"JSON in chunks":     {handler: inChunks, then: Error{Kind: NotMCP}, message: "the response is not MCP"},
		"no JSON":            {handler: page("application/json", `hello`), then: Error{Kind: NotMCP}, message: "the response is not MCP"},
		"an error":           {handler: rpc(`"error":{"code":-32603,"message":"request 4711 failed"}`), then: Error{Kind: Protocol, Code: -32603}, message: "the server responded to the handshake with JSON-RPC error -32603"},
		"an unknown version": {handler: rpc(`"result":{"protocolVersion":"1999-01-01","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`), then: Error{Kind: Protocol, Detail: "the server supports no known protocol version"}, message: "unexpected response: the server supports no known protocol version"},
		"endless body":       {handler: endlessBody, then: Error{Kind: TooLarge}, message: "the response is too large"},
		"many messages":      {handler: page("text/event-stream", strings.Repeat("data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n", 100)), then: Error{Kind: TooLarge}, message: "the response is too large"},
		"long headers":       {handler: longHeaders, then: Error{Kind: TooLarge, Detail: "its headers are longer than 16 KiB"}, message: "the response is too large: its headers are longer than 16 KiB"},
		"closed connection":  {handler: closesConnection, then: Error{Kind: Disconnected}, message: "the connection closed before the response was complete"},
		"truncated body":     {handler: truncatesBody, then: Error{Kind: Disconnected}, message: "the connection closed before the response was complete"},
		"ends the stream":    {handler: endsEarly, then: Error{Kind: Disconnected}, message: "the connection closed before the response was complete"},
		"redirects":          {handler: http.RedirectHandler("http://elsewhere.example/mcp", http.StatusTemporaryRedirect), then: Error{Kind: Redirected}, message: "the server redirects to another host"},
		"other host, events": {handler: redirectsEvents, sse: true, then: Error{Kind: Redirected}, message: "the server redirects to another host"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			expectNoLeak(t)
			target := Target{URL: serve(t, test.handler).URL, Timeout: testTimeout, Interval: testTimeout}
			if test.sse {
				target.Transport = SSE
			}
			found := probeOnce(t, target)
			g.Expect(found.err).To(Equal(&test.then))
			g.Expect(found.err.Error()).To(Equal(test.message))
		})
	}
}

func TestIsNotReached(t *testing.T) {
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	closedPort := "http://" + listener.Addr().String()
	g.Expect(listener.Close()).To(Succeed())
	g.Expect(probeOnce(t, Target{URL: closedPort}).err).To(Equal(&Error{Kind: Refused}))

	unresolved := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "web.default.svc", IsNotFound: true}}
	}
	p := newProber(t, Options{Dial: unresolved})
	e := &entry{target: Target{URL: "http://web.default.svc/mcp"}.complete()}
	e.prepare(nil)
	found := p.handshake(t.Context(), job{url: e.url, timeout: testTimeout})
	g.Expect(found.err).To(Equal(&Error{Kind: DNS}))
	g.Expect(found.err.Error()).To(Equal("the host name does not resolve"))

	refused := &Error{Kind: NotForwarded, Detail: "Forbidden"}
	p = newProber(t, Options{Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, fmt.Errorf("forwarding a port of pod web-1: %w", refused)
	}})
	found = p.handshake(t.Context(), job{url: e.url, timeout: testTimeout})
	g.Expect(found.err).To(Equal(refused))
	g.Expect(found.err.Error()).To(Equal("the API server does not forward the connection to the pod: Forbidden"))
}

func TestHangs(t *testing.T) {
	for name, when := range map[string]func(*http.Request) bool{
		"any request":    func(*http.Request) bool { return true },
		"in the session": func(r *http.Request) bool { return r.Method == http.MethodPost && r.Header.Get(sessionHeader) != "" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				handler := streamable(newServer(), nil)
				dial := serveInBubble(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if when(r) {
						_, _ = io.Copy(io.Discard, r.Body)
						<-r.Context().Done()
						return
					}
					handler.ServeHTTP(w, r)
				}))
				const timeout = 50 * time.Millisecond
				began := time.Now()
				found := probeWith(t, Options{Dial: dial}, Target{URL: bubbled, Timeout: timeout})
				g.Expect(found.err).To(Equal(&Error{Kind: Timeout}))
				g.Expect(time.Since(began)).To(Equal(timeout))
			})
		})
	}
}

func TestSessionThatCannotBeClosedIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := newServer()
		handler := streamable(server, nil)
		dial := serveInBubble(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				<-r.Context().Done()
				return
			}
			handler.ServeHTTP(w, r)
		}))
		began := time.Now()
		g.Expect(probeWith(t, Options{Dial: dial}, Target{URL: bubbled, Timeout: testTimeout, Interval: testTimeout}).err).To(BeNil())
		g.Expect(time.Since(began)).To(Equal(closeTimeout), "the timeout of the probe is longer")
		g.Expect(sessionsOf(server)).To(Equal(1))
		for session := range server.Sessions() {
			g.Expect(session.Close()).To(Succeed())
		}
	})
}

func TestSlowListDoesNotFailTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		handler := streamable(newServer(), &mcp.StreamableHTTPOptions{Stateless: true})
		dial := serveInBubble(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Mcp-Method") == "tools/list" {
				_, _ = io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
				return
			}
			handler.ServeHTTP(w, r)
		}))
		found := probeWith(t, Options{Dial: dial}, Target{URL: bubbled, Timeout: 3 * time.Second})
		g.Expect(found.err).To(BeNil())
		g.Expect(found.listErr).To(Equal(&Error{Kind: Timeout}))
		g.Expect(found.server.Tools).To(Equal(NotCounted))
	})
}

func TestServerWithoutDiscover(t *testing.T) {
	g := NewWithT(t)
	handler := streamable(newServer(), nil)
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") == "server/discover" {
			page("text/html", "What?").ServeHTTP(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	found := probeOnce(t, Target{URL: server.URL})
	g.Expect(found.err).To(BeNil())
	g.Expect(found.version).To(Equal(sessionVersion))
}

// What a server that does not know server/discover responds to it is for people, and can be anything.
func TestBodiesOfErrorsDoNotCount(t *testing.T) {
	for name, body := range map[string]string{
		"long":     "<html>" + strings.Repeat("<p>No such page.</p>", handshakeKept/10) + "</html>",
		"no JSON":  "<html lang=\"en\n",
		"brackets": strings.Repeat("[", handshakeValues+1),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			initialized := answers(false, map[string]func() string{"initialize": constant(withTools)})
			server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Mcp-Method") == "server/discover" {
					w.Header().Set("Content-Type", "text/html")
					w.WriteHeader(http.StatusNotFound)
					_, _ = io.WriteString(w, body)
					return
				}
				initialized.ServeHTTP(w, r)
			}))
			found := probeOnce(t, Target{URL: server.URL})
			g.Expect(found.err).To(BeNil())
			g.Expect(found.listErr).To(Equal(&Error{Kind: Protocol, Code: -32601}), "not that of the response to server/discover")
		})
	}
}

// The SDK handles what a server sends in goroutines, in which a panic ends the manager.
func TestRequestsAndNotificationsOfServersHaveNoEffect(t *testing.T) {
	for _, method := range []string{
		"completion/complete", "elicitation/create", "ping", "roots/list", "sampling/createMessage", "unknown",
		"notifications/cancelled", "notifications/elicitation/complete", "notifications/message", "notifications/progress",
		"notifications/prompts/list_changed", "notifications/resources/list_changed", "notifications/resources/updated",
		"notifications/subscriptions/acknowledged", "notifications/tools/list_changed", "notifications/unknown",
	} {
		for _, params := range []string{"", `,"params":null`, `,"params":{}`} {
			t.Run(method+params, func(t *testing.T) {
				g := NewWithT(t)
				var mu sync.Mutex
				received := map[string]int{}
				server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					var message struct {
						ID     json.RawMessage
						Method string
					}
					_ = json.NewDecoder(r.Body).Decode(&message)
					mu.Lock()
					received[message.Method]++
					mu.Unlock()
					if message.Method != "initialize" && message.Method != "tools/list" {
						w.WriteHeader(http.StatusAccepted)
						return
					}
					id := `,"id":"a"`
					if strings.HasPrefix(method, "notifications/") {
						id = ""
					}
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":%q%s%s}\n\n", method, id, params)
					_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", message.ID, withTools)
				}))

				found := probeOnce(t, Target{URL: server.URL}, func(j *job) { j.version = sessionVersion })

				g.Expect(found.err).To(BeNil())
				g.Expect(found.listErr).To(BeNil())
				mu.Lock()
				defer mu.Unlock()
				g.Expect(received).To(And(HaveKeyWithValue("initialize", 1), HaveKeyWithValue("tools/list", 1)))
				g.Expect(received).NotTo(HaveKey("completion/complete"))
			})
		}
	}
}

func TestSessionsOfRejectedRequestsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var mu sync.Mutex
		open := map[string]bool{}
		dial := serveInBubble(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if r.Header.Get("Authorization") != "Bearer token" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			if r.Method == http.MethodDelete {
				delete(open, r.Header.Get(sessionHeader))
				return
			}
			id := fmt.Sprintf("session-%d", len(open))
			open[id] = true
			w.Header().Set(sessionHeader, id)
			w.WriteHeader(http.StatusBadRequest)
		}))
		g.Expect(probeWith(t, Options{Dial: dial}, Target{URL: bubbled, Bearer: Credential("token")}).err).To(Equal(&Error{Kind: HTTPStatus, Status: 400}))
		g.Expect(open).To(BeEmpty())
	})
}

func TestTLS(t *testing.T) {
	secure := httptest.NewTLSServer(streamable(newServer(), &mcp.StreamableHTTPOptions{DisableLocalhostProtection: true}))
	defer secure.Close()
	secure.Config.ErrorLog = nil
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	plain := serve(t, streamable(newServer(), nil))
	for name, test := range map[string]struct {
		target Target
		then   *Error
	}{
		"own CA":          {Target{URL: secure.URL, CA: ca}, nil},
		"wrong CA":        {Target{URL: secure.URL}, &Error{Kind: TLS, Detail: "the certificate is not signed by a trusted authority"}},
		"the name counts": {Target{URL: "https://example.com/mcp", Addresses: []string{hostOf(t, secure.URL)}, CA: ca}, nil},
		"wrong name":      {Target{URL: "https://elsewhere.test/mcp", Addresses: []string{hostOf(t, secure.URL)}, CA: ca}, &Error{Kind: TLS, Detail: "the certificate is for another host"}},
		"no TLS":          {Target{URL: "https://" + hostOf(t, plain.URL)}, &Error{Kind: TLS, Detail: "the server does not speak TLS"}},
		"no CA at all":    {Target{URL: secure.URL, CA: []byte("nonsense")}, &Error{Kind: Invalid, Detail: "the CA bundle contains no certificate"}},
	} {
		t.Run(name, func(t *testing.T) {
			found := probeOnce(t, test.target)
			NewWithT(t).Expect(found.err).To(Equal(test.then))
		})
	}
}

func TestInvalidTargets(t *testing.T) {
	for name, target := range map[string]Target{
		"no URL":          {},
		"no host":         {URL: "http:///mcp"},
		"not HTTP":        {URL: "ftp://web/mcp"},
		"not a transport": {URL: "http://web/mcp", Transport: "stdio"},
		"bad credential":  {URL: "http://web/mcp", Bearer: Credential("a\nb")},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(probeOnce(t, target).err).To(HaveField("Kind", Invalid))
		})
	}
}

func TestReplicasAreDialledWithTheHostOfTheService(t *testing.T) {
	g := NewWithT(t)
	var host string
	handler := streamable(newServer(), &mcp.StreamableHTTPOptions{Stateless: true, DisableLocalhostProtection: true})
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host = r.Host
		handler.ServeHTTP(w, r)
	}))
	found := probeOnce(t, Target{URL: "http://web.default.svc:8080/mcp", Addresses: []string{hostOf(t, server.URL)}})
	server.Close()
	g.Expect(found.err).To(BeNil())
	g.Expect(host).To(Equal("web.default.svc:8080"))
}

// Servers refuse other names on the loopback interface, which is where a port-forward arrives.
func TestReplicasAreProbedUnderAnotherHost(t *testing.T) {
	g := NewWithT(t)
	var host string
	handler := streamable(newServer(), nil)
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost { // a probe does not always wait until a session is deleted
			host = r.Host
		}
		handler.ServeHTTP(w, r)
	}))
	defer secure.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	target := Target{URL: "https://example.com:8080/mcp", Addresses: []string{hostOf(t, secure.URL)}, CA: ca}
	g.Expect(probeOnce(t, target).err).To(Equal(&Error{Kind: Forbidden, Status: 403}))
	g.Expect(probeWith(t, Options{Host: "localhost"}, target).err).To(BeNil())
	g.Expect(host).To(Equal("localhost:8080"))
	target.URL = "https://example.com/mcp"
	g.Expect(probeWith(t, Options{Host: "localhost"}, target).err).To(BeNil())
	secure.Close()
	g.Expect(host).To(Equal("localhost"))
	g.Expect(probeWith(t, Options{Host: "localhost"}, Target{URL: ":"}).err).To(HaveField("Kind", Invalid))
}

func TestSameHostRedirectsAreFollowed(t *testing.T) {
	g := NewWithT(t)
	mux := http.NewServeMux()
	mux.Handle("/mcp", http.RedirectHandler("/mcp/", http.StatusTemporaryRedirect))
	mux.Handle("/mcp/", streamable(newServer(), &mcp.StreamableHTTPOptions{Stateless: true}))
	g.Expect(probeOnce(t, Target{URL: serve(t, mux).URL + "/mcp"}).err).To(BeNil())
}

// It would get the credentials.
func TestRedirectsToAnotherHostAreNotFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var hosts []string
		dial := serveInBubble(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			hosts = append(hosts, r.Host)
			http.Redirect(w, r, "http://elsewhere.example/mcp", http.StatusTemporaryRedirect)
		}))
		g.Expect(probeWith(t, Options{Dial: dial}, Target{URL: bubbled, Bearer: Credential("secret")}).err).To(Equal(&Error{Kind: Redirected}))
		synctest.Wait()
		g.Expect(hosts).To(Equal([]string{"web.default.svc", "web.default.svc"}), "server/discover and initialize")
	})
}

// A redirect to the same host without TLS would send the credentials in clear text.
func TestRedirectsToAnotherSchemeAreNotFollowed(t *testing.T) {
	g := NewWithT(t)
	to := func(scheme string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, scheme+"://"+r.Host+"/mcp", http.StatusTemporaryRedirect)
		})
	}
	secure := httptest.NewTLSServer(to("http"))
	defer secure.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	for name, target := range map[string]Target{
		"without TLS": {URL: secure.URL, CA: ca, Bearer: Credential("secret")},
		"with TLS":    {URL: serve(t, to("https")).URL, Bearer: Credential("secret")},
	} {
		g.Expect(probeOnce(t, target).err).To(Equal(&Error{Kind: Redirected}), name)
	}
}

// One server of a namespace is listed at a time. Others are probed without their lists, and listed later.
func TestServersOfANamespaceAreListedOneAfterTheOther(t *testing.T) {
	g := NewWithT(t)
	server := serve(t, streamable(newServer(), nil))
	p := newProber(t, Options{})
	busy, other := p.joinNamespace("busy"), p.joinNamespace("other")
	g.Expect(p.joinNamespace("busy")).To(BeIdenticalTo(busy))
	g.Expect(busy.lists.TryAcquire(1)).To(BeTrue())
	probe := func(n *namespace) answer {
		return probeOnce(t, Target{URL: server.URL}, func(j *job) { j.lists = n.lists })
	}

	postponed := probe(busy)
	g.Expect(postponed.err).To(BeNil())
	g.Expect(postponed.listed).To(BeFalse())
	g.Expect(probe(other).counted()).To(BeTrue())

	busy.lists.Release(1)
	g.Expect(probe(busy).counted()).To(BeTrue())
	g.Expect(probe(busy).counted()).To(BeTrue(), "the semaphore is released")
	p.leaveNamespace("busy")
	g.Expect(p.namespaces).To(HaveKey("busy"))
	p.leaveNamespace("busy")
	g.Expect(p.namespaces).NotTo(HaveKey("busy"))
}

// Servers see which client probes them. It declares nothing that they could ask for.
func TestHandshakeNamesTheClient(t *testing.T) {
	withoutDiscover := func(s *mcp.Server) http.Handler {
		handler := streamable(s, nil)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Mcp-Method") == "server/discover" {
				page("text/html", "What?").ServeHTTP(w, r)
				return
			}
			handler.ServeHTTP(w, r)
		})
	}
	for name, test := range map[string]struct {
		handler   func(*mcp.Server) http.Handler
		transport Transport
		version   string
		then      []string
	}{
		"with sessions": {
			handler: func(s *mcp.Server) http.Handler { return streamable(s, nil) }, version: sessionVersion,
			then: []string{"initialize", "notifications/initialized"},
		},
		"without discover": {
			handler: withoutDiscover,
			then:    []string{"server/discover", "initialize", "notifications/initialized"},
		},
		"sse": {
			handler: func(s *mcp.Server) http.Handler {
				return mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return s }, nil)
			},
			transport: SSE,
			then:      []string{"initialize", "notifications/initialized"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				var methods []string
				var initialize json.RawMessage
				var compressed bool
				handler := test.handler(newServer())
				dial := serveInBubble(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					compressed = compressed || r.Header.Get("Accept-Encoding") != ""
					body, _ := io.ReadAll(r.Body)
					r.Body = io.NopCloser(bytes.NewReader(body))
					var call struct {
						Method string
						Params json.RawMessage
					}
					if json.Unmarshal(body, &call) == nil {
						methods = append(methods, call.Method)
						if call.Method == "initialize" {
							initialize = call.Params
						}
					}
					handler.ServeHTTP(w, r)
				}))
				options := Options{Dial: dial, Version: "4.5"}
				found := probeWith(t, options, Target{URL: bubbled, Transport: test.transport}, func(j *job) { j.list, j.version = false, test.version })
				synctest.Wait()
				g.Expect(found.err).To(BeNil())
				g.Expect(compressed).To(BeFalse(), "little could become much")
				g.Expect(methods).To(Equal(test.then))
				g.Expect(initialize).To(MatchJSON(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"fixpoint-prober","version":"4.5"}}`))
			})
		})
	}
}

func TestHandshakeThatFailsIsNotRepeated(t *testing.T) {
	g := NewWithT(t)
	requests := 0
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		page("text/html", "What?").ServeHTTP(w, r)
	}))
	found := probeOnce(t, Target{URL: server.URL}, func(j *job) { j.version = sessionVersion })
	server.Close()
	g.Expect(found.err).To(Equal(&Error{Kind: NotMCP}))
	g.Expect(requests).To(Equal(1), "the version is that of its sessions")

	for name, test := range map[string]struct {
		handler http.Handler
		then    []string
	}{
		"the server knows neither request":  {status(404), []string{"POST", "POST"}},
		"the stream can be continued later": {page("text/event-stream", "id: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n"), []string{"POST", "POST"}},
	} {
		var methods []string
		server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			methods = append(methods, r.Method)
			test.handler.ServeHTTP(w, r)
		}))
		g.Expect(probeOnce(t, Target{URL: server.URL}).err).NotTo(BeNil(), name)
		server.Close()
		g.Expect(methods).To(Equal(test.then), name)
	}

	dialled := 0
	found = probeWith(t, Options{Dial: func(context.Context, string, string) (net.Conn, error) {
		dialled++
		return nil, &Error{Kind: NotForwarded}
	}}, Target{URL: bubbled})
	g.Expect(found.err).To(Equal(&Error{Kind: NotForwarded}))
	g.Expect(dialled).To(Equal(1), "it has not read the request")
}

func TestErrorIsThatOfTheLastHandshake(t *testing.T) {
	g := NewWithT(t)
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") == "server/discover" {
			w.Header().Set("Content-Length", "100")
			page("application/json", `{"jsonrpc":`).ServeHTTP(w, r)
			return
		}
		page("text/html", "What?").ServeHTTP(w, r)
	}))
	g.Expect(probeOnce(t, Target{URL: server.URL}).err).To(Equal(&Error{Kind: NotMCP}))
}

func TestProbeWaitsHalfASecondForTheListsOfAnotherServer(t *testing.T) {
	for name, test := range map[string]struct {
		busy time.Duration
		then bool
	}{
		"shorter": {400 * time.Millisecond, true},
		"longer":  {600 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				dial := serveInBubble(t, streamable(newServer(), nil))
				found := probeWith(t, Options{Dial: dial}, Target{URL: bubbled}, func(j *job) {
					g.Expect(j.lists.TryAcquire(1)).To(BeTrue())
					time.AfterFunc(test.busy, func() { j.lists.Release(1) })
				})
				g.Expect(found.err).To(BeNil())
				g.Expect(found.listed).To(Equal(test.then))
			})
		})
	}
}
