package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// callTimeout limits one call, including a new connection. A busy machine can take long to respond.
const callTimeout = time.Minute

// report is the result of the client's calls.
type report struct {
	// Calls is the number of calls.
	Calls int `json:"calls"`
	// Failures lists the failed calls with time and error.
	Failures []string `json:"failures,omitempty"`
	// Pods counts the responses by pod.
	Pods map[string]int `json:"pods"`
	// Pause is the longest time from the start of a call to the end of the next one.
	Pause time.Duration `json:"pause"`
	// Last is the last response.
	Last json.RawMessage `json:"last,omitempty"`
	// Server is the name that the MCP server reports.
	Server string `json:"server,omitempty"`
}

// client sends requests to other pods. Its own API:
//
//	GET /call?url=U            one session with one call
//	GET /get?url=U             one GET of a web application
//	GET /load?url=U&kind=K     calls until stopped: sessions (one call in each),
//	                           session (one for all calls, on one connection), client
//	                           (one for all calls, without a session if the server can),
//	                           scattered (many sessions, behind a proxy without affinity),
//	                           get
//	GET /scrape?address=A&name=N&ca=C   the metrics at the address, as N by the authority C
//	GET /report                the results of the load so far
//	GET /stop                  stops the load and returns its results
type client struct {
	mu     sync.Mutex
	cancel context.CancelFunc
	over   chan struct{}
	found  report
}

func serveClient(ctx context.Context) error {
	c := &client{}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /call", func(w http.ResponseWriter, r *http.Request) { c.once(w, r, "sessions") })
	routes.HandleFunc("GET /get", func(w http.ResponseWriter, r *http.Request) { c.once(w, r, "get") })
	routes.HandleFunc("GET /load", c.load)
	routes.HandleFunc("GET /scrape", serveScrape)
	routes.HandleFunc("GET /report", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, c.snapshot()) })
	routes.HandleFunc("GET /stop", func(w http.ResponseWriter, _ *http.Request) {
		c.stop()
		writeJSON(w, c.snapshot())
	})
	return serve(ctx, port("8080"), routes, 0)
}

func serveScrape(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	found, err := scrape(r.Context(), query.Get("address"), query.Get("name"), query.Get("ca"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	writeJSON(w, found)
}

func (c *client) once(w http.ResponseWriter, r *http.Request, kind string) {
	single := &client{}
	call := kinds[kind](r.URL.Query().Get("url"))
	defer call.end()
	single.record(call.do(r.Context()))
	writeJSON(w, single.snapshot())
}

func (c *client) load(w http.ResponseWriter, r *http.Request) {
	begin, known := kinds[r.URL.Query().Get("kind")]
	if !known {
		http.Error(w, "kind: sessions, session, client, scattered or get", http.StatusBadRequest)
		return
	}
	c.stop()
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	c.mu.Lock()
	c.found, c.cancel, c.over = report{}, cancel, over
	c.mu.Unlock()
	go func() {
		defer close(over)
		call := begin(r.URL.Query().Get("url"))
		defer call.end()
		c.repeat(ctx, call)
	}()
	writeJSON(w, report{})
}

// betweenCalls is short enough to notice gaps and long enough not to load the node.
const betweenCalls = 20 * time.Millisecond

func (c *client) repeat(ctx context.Context, call *caller) {
	ticker := time.NewTicker(betweenCalls)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			began := time.Now()
			// The current call completes, so that stopping causes no failure.
			result, server, err := call.do(context.WithoutCancel(ctx))
			c.paused(time.Since(last))
			c.record(result, server, err)
			last = began
		}
	}
}

func (c *client) stop() {
	c.mu.Lock()
	cancel, over := c.cancel, c.over
	c.cancel = nil
	c.mu.Unlock()
	if cancel != nil {
		cancel()
		<-over
	}
}

// paused records a pause before its call, so that a report with the failure of the call contains the pause.
func (c *client) paused(pause time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found.Pause = max(c.found.Pause, pause)
}

func (c *client) record(result json.RawMessage, server string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found.Calls++
	if err != nil {
		c.found.Failures = append(c.found.Failures, time.Now().Format("15:04:05.000")+" "+err.Error())
		return
	}
	var a answer
	if err := json.Unmarshal(result, &a); err != nil {
		c.found.Failures = append(c.found.Failures, fmt.Sprintf("unexpected response: %s", result))
		return
	}
	if c.found.Pods == nil {
		c.found.Pods = map[string]int{}
	}
	c.found.Pods[a.Pod]++
	c.found.Last, c.found.Server = result, server
}

func (c *client) snapshot() report {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.found
	found.Failures = append([]string(nil), c.found.Failures...)
	found.Pods = map[string]int{}
	for pod, calls := range c.found.Pods {
		found.Pods[pod] = calls
	}
	return found
}

// caller sends calls sequentially.
type caller struct {
	url string
	// version is the protocol version; empty means the latest.
	version   string
	transport http.RoundTripper
	call      func(ctx context.Context, c *caller) (json.RawMessage, string, error)
	session   *mcp.ClientSession
	// scattered are the sessions of a load of that kind.
	scattered scattered
}

// withSessions is the last protocol version with sessions.
const withSessions = "2025-11-25"

var kinds = map[string]func(url string) *caller{
	"sessions": func(url string) *caller { return &caller{url: url, call: inNewSession} },
	"session": func(url string) *caller {
		return &caller{url: url, call: asOneClient, version: withSessions, transport: &kept{streams: &http.Transport{}}}
	},
	"client":    func(url string) *caller { return &caller{url: url, call: asOneClient, transport: &http.Transport{}} },
	"scattered": behindProxy,
	"get":       func(url string) *caller { return &caller{url: url, call: get} },
}

func (c *caller) do(ctx context.Context) (json.RawMessage, string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.call(ctx, c)
}

func (c *caller) end() {
	c.scattered.end()
	if c.session != nil {
		_ = c.session.Close()
	}
}

// inNewSession opens a connection and a session for a single call.
func inNewSession(ctx context.Context, c *caller) (json.RawMessage, string, error) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	session, err := connect(ctx, c, transport)
	if err != nil {
		return nil, "", err
	}
	result, server, err := count(ctx, session)
	return result, server, errors.Join(err, session.Close())
}

func asOneClient(ctx context.Context, c *caller) (json.RawMessage, string, error) {
	if c.session == nil {
		session, err := connect(context.WithoutCancel(ctx), c, c.transport)
		if err != nil {
			return nil, "", err
		}
		c.session = session
	}
	return count(ctx, c.session)
}

func connect(ctx context.Context, c *caller, transport http.RoundTripper) (*mcp.ClientSession, error) {
	made := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1.0.0"}, nil)
	session, err := made.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: c.url, HTTPClient: &http.Client{Transport: transport}},
		&mcp.ClientSessionOptions{ProtocolVersion: c.version})
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return session, nil
}

func count(ctx context.Context, session *mcp.ClientSession) (json.RawMessage, string, error) {
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "count"})
	if err != nil {
		return nil, "", fmt.Errorf("calling: %w", err)
	}
	content, err := json.Marshal(result.StructuredContent)
	if err != nil {
		return nil, "", fmt.Errorf("encoding the result: %w", err)
	}
	name := ""
	if initialized := session.InitializeResult(); initialized != nil && initialized.ServerInfo != nil {
		name = initialized.ServerInfo.Name
	}
	return content, name, nil
}

func get(ctx context.Context, c *caller) (json.RawMessage, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return nil, "", err
	}
	// Without keep-alive, the next request can reach another pod.
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, "", err
	}
	if response.StatusCode != http.StatusOK {
		return nil, "", fmt.Errorf("%s: %s", response.Status, content)
	}
	return content, "", nil
}
