package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// discoverPatience is how long a server may leave server/discover unanswered
// before it is asked to initialize as well: some ignore what they do not know.
const discoverPatience = 3 * time.Second

const (
	discoverID   = `1`
	initializeID = `2`

	discoverMessage = `{"jsonrpc":"2.0","id":` + discoverID + `,"method":"server/discover","params":{"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"fixpoint-mcp-bridge","version":"v1alpha1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}}}`
	initializeMessage = `{"jsonrpc":"2.0","id":` + initializeID + `,"method":"initialize","params":{` +
		`"protocolVersion":"2025-11-25","capabilities":{},` +
		`"clientInfo":{"name":"fixpoint-mcp-bridge","version":"v1alpha1"}}}`
)

// HandshakeError says that the command runs, but does not answer as an MCP
// server does.
type HandshakeError struct {
	// Problem is what happened instead.
	Problem string
	// Stderr is the end of what the command wrote to its standard error.
	Stderr string
}

func (e *HandshakeError) Error() string {
	message := "the command does not answer as an MCP server on its standard output: " + e.Problem
	if e.Stderr != "" {
		message += "; it wrote to stderr: " + e.Stderr
	}
	return message
}

// Check starts the command once and shakes hands with it; then the bridge is
// ready, and knows which spec versions the server speaks. The error is a
// CommandError or a HandshakeError if it is the command's fault.
func (b *Bridge) Check(ctx context.Context) error {
	_, err := b.era(ctx)
	return err
}

// era reports whether the server speaks the stateless spec; it asks once.
func (b *Bridge) era(ctx context.Context) (bool, error) {
	select {
	case b.probing <- struct{}{}:
		defer func() { <-b.probing }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if known := b.known.Load(); known != nil {
		return *known, nil
	}
	stateless, err := b.probe(ctx)
	var broken *HandshakeError
	if errors.As(err, &broken) && ctx.Err() == nil {
		// Perhaps it could not bear the first question.
		stateless, err = b.probeWith(ctx, initializeMessage)
	}
	if err != nil {
		return false, err
	}
	b.known.Store(&stateless)
	b.opts.Log.Info("Server answers", "stateless", stateless)
	return stateless, nil
}

// speaksStateless refuses a stateless request to a server that needs sessions,
// in the way that makes clients fall back to initialize.
func (b *Bridge) speaksStateless(ctx context.Context, e *envelope) *failure {
	stateless, err := b.era(ctx)
	switch {
	case err != nil:
		b.opts.Log.Error(err, "Asking the server for its spec versions failed")
		return refused(reasonStartFailed, "the MCP server process does not answer", 5)
	case stateless:
		return nil
	case e.Method == methodDiscover:
		return &failure{status: http.StatusNotFound, code: codeMethodNotFound, message: "this server needs a session: initialize"}
	default:
		f := badRequest(codeUnsupportedVersion, "this server needs a session: initialize")
		f.data = map[string]any{"supported": sessionVersions, "requested": text(e.Params.Meta.ProtocolVersion)}
		return f
	}
}

func (b *Bridge) probe(ctx context.Context) (bool, error) {
	return b.probeWith(ctx, discoverMessage)
}

// probeWith shakes hands with a child of its own, beginning with the message.
func (b *Bridge) probeWith(ctx context.Context, first string) (bool, error) {
	c, err := b.launcher.start(b.opts.Log.WithValues("session", "check"))
	if err != nil {
		return false, err
	}
	defer b.background(c.stop)
	lines := make(chan reply)
	stop := make(chan struct{})
	defer close(stop)
	go readReplies(c, lines, stop)

	h := handshake{child: c, lines: lines, timeout: b.opts.StartTimeout}
	stateless, problem := h.run(ctx, first)
	if problem != "" {
		return false, &HandshakeError{Problem: problem, Stderr: c.stderr.last()}
	}
	b.metrics.startTime.Observe(time.Since(c.started).Seconds())
	return stateless, ctx.Err()
}

// reply is a message of a child that is being asked.
type reply struct {
	envelope
	line []byte
}

func readReplies(c *child, lines chan<- reply, stop <-chan struct{}) {
	defer close(lines)
	for {
		line, _, err := c.lines.next()
		if err != nil {
			return
		}
		e, err := parse(line)
		if err != nil {
			continue
		}
		select {
		case lines <- reply{e, bytes.Clone(line)}:
		case <-stop:
			// Read on, so that the child can come to its end.
		}
	}
}

// handshake is one attempt to get an answer out of a child.
type handshake struct {
	child   *child
	lines   <-chan reply
	timeout time.Duration
}

// run returns whether the server is a stateless one, or the problem.
func (h *handshake) run(ctx context.Context, first string) (bool, string) {
	// The sending may block as long as the child does not read.
	go func() { _ = h.child.send([]byte(first)) }()
	patience := time.NewTimer(discoverPatience)
	defer patience.Stop()
	timeout := time.NewTimer(h.timeout)
	defer timeout.Stop()
	asked := first == initializeMessage
	initialize := func() {
		if !asked {
			asked = true
			go func() { _ = h.child.send([]byte(initializeMessage)) }()
		}
	}
	for {
		select {
		case e, ok := <-h.lines:
			if !ok {
				return false, h.end()
			}
			switch string(e.ID) {
			case initializeID:
				return initialized(e.envelope)
			case discoverID:
				if e.discovered() {
					return true, ""
				}
				initialize()
			}
		case <-patience.C:
			initialize()
		case <-timeout.C:
			return false, fmt.Sprintf("no answer within %s", h.timeout)
		case <-ctx.Done():
			return false, "the check was interrupted"
		}
	}
}

// end says how a child went that has closed its output.
func (h *handshake) end() string {
	if !h.child.waitFor(h.child.grace) {
		return "it closed its standard output"
	}
	<-h.child.stderr.done
	return "it ended with " + h.child.exit()
}

func initialized(e envelope) (bool, string) {
	if present(e.Error) {
		return false, "it refused to initialize: " + string(e.Error)
	}
	return false, ""
}

// discovered reports whether a response to server/discover comes from a server
// that speaks a stateless version.
func (r *reply) discovered() bool {
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
	if json.Unmarshal(r.line, &said) != nil {
		return false
	}
	for _, v := range append(said.Result.Supported, said.Error.Data.Supported...) {
		if v >= statelessVersion {
			return true
		}
	}
	return false
}
