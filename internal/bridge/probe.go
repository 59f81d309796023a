package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// discoverTimeout is the time to wait for a response to server/discover before
// initialize is sent as well: some servers ignore unknown methods. It is also how long
// the response to initialize does not decide, because servers handle requests concurrently.
const discoverTimeout = 3 * time.Second

const (
	discoverID   = `1`
	initializeID = `2`

	// statelessMeta are the members of _meta in requests of the bridge without a session.
	statelessMeta = `"io.modelcontextprotocol/protocolVersion":"` + statelessVersion + `",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"fixpoint-mcp-bridge","version":"v1beta1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}`

	discoverMessage   = `{"jsonrpc":"2.0","id":` + discoverID + `,"method":"server/discover","params":{"_meta":{` + statelessMeta + `}}}`
	initializeMessage = `{"jsonrpc":"2.0","id":` + initializeID + `,"method":"initialize","params":{` +
		`"protocolVersion":"2025-11-25","capabilities":{},` +
		`"clientInfo":{"name":"fixpoint-mcp-bridge","version":"v1beta1"}}}`
)

// HandshakeError is the error of a command that runs but does not complete an
// MCP handshake.
type HandshakeError struct {
	// Problem describes what happened instead.
	Problem string
	// Stderr is the end of the standard error of the command.
	Stderr string
	// rejected is true if the command responded to initialize with an error, other than that it failed.
	rejected bool
}

func (e *HandshakeError) Error() string {
	message := "the command did not complete an MCP handshake on its standard output: " + e.Problem
	if e.Stderr != "" {
		message += "; stderr: " + e.Stderr
	}
	return message
}

// generations are the generations of the specification that a server speaks, at least one.
type generations struct {
	// sessions is true if it responds to initialize.
	sessions bool
	// stateless are its versions without sessions, newest first; none if it requires sessions.
	stateless []string
}

// Check starts the command once and makes an MCP handshake, which also detects
// the spec versions of the server. The error is a CommandError or a
// HandshakeError if the command causes it.
func (b *Bridge) Check(ctx context.Context) error {
	if !acquire(ctx, b.probing) {
		return ctx.Err()
	}
	defer func() { <-b.probing }()
	_, err := b.detect(ctx)
	return err
}

// detect finds out what the server speaks, and caches the result. A failure delays the next start of a process without a
// session. The caller holds probing.
func (b *Bridge) detect(ctx context.Context) (*generations, error) {
	if known := b.speaks.Load(); known != nil {
		return known, nil
	}
	found, err := b.probe(ctx)
	if err != nil {
		if ctx.Err() == nil {
			b.shared.mu.Lock()
			defer b.shared.mu.Unlock()
			b.shared.delay()
		}
		return nil, err
	}
	b.speaks.Store(found)
	b.opts.Log.Info("Handshake with the server succeeded", "sessions", found.sessions, "versionsWithoutSessions", found.stateless)
	return found, nil
}

func (b *Bridge) probe(ctx context.Context) (*generations, error) {
	found, err := b.probeWith(ctx, discoverMessage)
	var broken *HandshakeError
	if errors.As(err, &broken) && ctx.Err() == nil {
		// Some servers fail on server/discover.
		return b.probeWith(ctx, initializeMessage)
	}
	if err != nil || found.sessions {
		return found, err
	}
	// Some SDKs omit the versions with sessions in the response to server/discover. Only a rejection shows that
	// the server has none, and it takes another process: the first message selects the generation of a process.
	_, err = b.probeWith(ctx, initializeMessage)
	found.sessions = !errors.As(err, &broken) || !broken.rejected
	return found, ctx.Err()
}

// hasNoSessions reports whether the server is known to speak only the generation without sessions.
func (b *Bridge) hasNoSessions() bool {
	known := b.speaks.Load()
	return known != nil && !known.sessions
}

// checkGeneration rejects messages with sessions if the server is known to have none. For initialize, the
// specification 2026-07-28 says: "If the server does not implement the requested RPC method, it MUST respond with 404
// Not Found and a JSON-RPC error with code -32601" (Streamable HTTP, Protocol Version Header), and "A server that
// supports only modern versions SHOULD name the protocol versions it supports in any error it returns to an initialize
// request" (Versioning).
func (b *Bridge) checkGeneration(r *http.Request, in *incoming) *failure {
	if !b.hasNoSessions() {
		return nil
	}
	versions, requested := b.speaks.Load().stateless, r.Header.Get(headerVersion)
	f := &failure{
		Data:    map[string]any{"supported": versions, "requested": requested},
		Message: "this server has no sessions and no initialize: use a client for " + strings.Join(versions, ", "),
	}
	switch {
	case in.Method == methodInit:
		f.Status, f.Code = http.StatusNotFound, codeMethodNotFound
	case requested != "" && requested < statelessVersion:
		f.Status, f.Code = http.StatusBadRequest, codeUnsupportedVersion
	default:
		return nil
	}
	return f
}

// checkServerStateless rejects a stateless request to a server that requires
// sessions, with errors that make clients fall back to initialize.
func (b *Bridge) checkServerStateless(ctx context.Context, e *envelope) *failure {
	found, f := b.detectForRequest(ctx)
	switch {
	case f != nil:
		return f
	case len(found.stateless) > 0:
		return nil
	case e.Method == methodDiscover:
		return &failure{Status: http.StatusNotFound, Code: codeMethodNotFound, Message: "this server requires a session: send initialize"}
	default:
		f := badRequest(codeUnsupportedVersion, "this server requires a session: send initialize")
		f.Data = map[string]any{"supported": sessionVersions, "requested": text(e.Params.Meta.ProtocolVersion)}
		return f
	}
}

// detectForRequest is detect for a request of a client. Requests that waited for an attempt share its failure.
func (b *Bridge) detectForRequest(ctx context.Context) (*generations, *failure) {
	clientLeft := ended(reasonClientLeft, "the client disconnected")
	if !acquire(ctx, b.probing) {
		return nil, clientLeft
	}
	defer func() { <-b.probing }()
	if b.isClosed() {
		return nil, drainFailure()
	}
	if b.speaks.Load() == nil && b.startDelay() > 0 {
		return nil, b.notResponding()
	}
	found, err := b.detect(ctx)
	switch {
	case err == nil:
		return found, nil
	case ctx.Err() != nil:
		return nil, clientLeft
	case b.isClosed():
		return nil, drainFailure()
	}
	b.opts.Log.Error(err, "Failed to detect the spec versions of the server")
	return nil, b.notResponding()
}

func (b *Bridge) notResponding() *failure {
	return refused(reasonStartFailed, "the MCP server process does not respond", max(5, int(b.startDelay()/time.Second)+1))
}

// startDelay is the time until a process without a session may be started.
func (b *Bridge) startDelay() time.Duration {
	b.shared.mu.Lock()
	defer b.shared.mu.Unlock()
	return time.Until(b.shared.nextStart)
}

// errClosed is the error of a check that would begin after Close.
var errClosed = errors.New("the bridge is closed")

// probeWith makes a handshake with a new child, starting with the given message. Close ends it.
func (b *Bridge) probeWith(ctx context.Context, first string) (*generations, error) {
	done, ok := b.beginJob()
	if !ok {
		return nil, errClosed
	}
	c, err := b.launcher.start(b.opts.Log.WithValues("session", "check"), b.sharedUser)
	if err != nil {
		done()
		return nil, err
	}
	defer func() {
		go func() {
			defer done()
			c.stop()
		}()
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.closed, cancel)()
	lines := make(chan reply)
	stop := make(chan struct{})
	defer close(stop)
	go readReplies(c, lines, stop)

	h := handshake{child: c, lines: lines, discover: b.times.discover, timeout: b.opts.StartTimeout}
	found, failed := h.run(ctx, first)
	if failed != nil {
		failed.Stderr = c.stderr.last()
		return nil, failed
	}
	b.metrics.startTime.Observe(time.Since(c.started).Seconds())
	return found, ctx.Err()
}

// reply is a message of a child during a handshake.
type reply struct {
	envelope
	line []byte
}

func readReplies(c *child, lines chan<- reply, stop <-chan struct{}) {
	defer close(lines)
	defer c.stdout.Close()
	for {
		line, _, err := c.lines.next()
		if err != nil {
			return
		}
		line = bytes.Clone(line)
		e, err := parse(line)
		if err != nil {
			continue
		}
		select {
		case lines <- reply{e, line}:
		case <-stop:
			// Continue reading, so that the child can exit.
		}
	}
}

// handshake is one handshake with a child.
type handshake struct {
	child    *child
	lines    <-chan reply
	discover time.Duration
	timeout  time.Duration
	// discovered is the response to server/discover, and legacy that to initialize; nil before.
	discovered *generations
	legacy     *envelope
}

// run returns what the server speaks, or why the handshake failed.
func (h *handshake) run(ctx context.Context, first string) (*generations, *HandshakeError) {
	// send blocks while the child does not read.
	firstSent := make(chan struct{})
	go func() {
		defer close(firstSent)
		_ = h.child.send([]byte(first))
	}()
	discover := time.NewTimer(h.discover)
	timeout := time.After(h.timeout)
	initializeSent := first == initializeMessage
	if initializeSent {
		h.discovered = &generations{}
	}
	initialize := func() {
		if !initializeSent {
			initializeSent = true
			go func() {
				<-firstSent
				_ = h.child.send([]byte(initializeMessage))
			}()
		}
	}
	for {
		select {
		case e, ok := <-h.lines:
			if !ok {
				return h.conclude(h.end)
			}
			if h.take(e) == initializeID {
				// Servers handle requests concurrently, so that the response to the first can be the second.
				discover.Reset(h.discover)
			}
			switch {
			case h.discovered == nil:
			case len(h.discovered.stateless) > 0:
				return h.discovered, nil
			case h.legacy != nil:
				return initialized(*h.legacy)
			default:
				initialize()
			}
		case <-discover.C:
			if h.legacy != nil {
				return initialized(*h.legacy)
			}
			initialize()
		case <-timeout:
			return h.conclude(func() string { return fmt.Sprintf("no response within %s", h.timeout) })
		case <-ctx.Done():
			return nil, &HandshakeError{Problem: "the check was cancelled"}
		}
	}
}

// take keeps a response, and returns its id; empty for other messages.
func (h *handshake) take(e reply) string {
	if e.kind() != response {
		return "" // the server numbers its requests itself
	}
	switch string(e.ID) {
	case initializeID:
		h.legacy = &e.envelope
	case discoverID:
		h.discovered = e.discovered()
	}
	return string(e.ID)
}

// conclude returns what the responses so far say, or else the problem.
func (h *handshake) conclude(problem func() string) (*generations, *HandshakeError) {
	if h.legacy != nil {
		return initialized(*h.legacy)
	}
	return nil, &HandshakeError{Problem: problem()}
}

// end describes the end of a child that has closed its standard output.
func (h *handshake) end() string {
	if !h.child.waitFor(h.child.grace) {
		return "it closed its standard output"
	}
	<-h.child.stderr.done
	return "it exited with " + h.child.exit()
}

func initialized(e envelope) (*generations, *HandshakeError) {
	if present(e.Error) {
		var failed struct{ Code int }
		_ = json.Unmarshal(e.Error, &failed) // What is no error of JSON-RPC has no code.
		return nil, &HandshakeError{Problem: "it rejected initialize: " + string(e.Error), rejected: failed.Code != codeInternal}
	}
	return &generations{sessions: true}, nil
}

// discovered returns what a response to server/discover lists.
func (r *reply) discovered() *generations {
	var said struct {
		Result struct {
			Supported []string `json:"supportedVersions"`
		} `json:"result"`
		Error struct {
			Data struct {
				Supported []string `json:"supported"`
			} `json:"data"`
		} `json:"error"`
	}
	found := &generations{}
	if json.Unmarshal(r.line, &said) != nil {
		return found
	}
	for _, v := range append(said.Result.Supported, said.Error.Data.Supported...) {
		if v >= statelessVersion {
			found.stateless = append(found.stateless, v)
		} else {
			found.sessions = true
		}
	}
	slices.SortFunc(found.stateless, func(a, b string) int { return strings.Compare(b, a) })
	return found
}
