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

// discoverTimeout is the time to wait for a response to server/discover before
// initialize is sent as well: some servers ignore unknown methods.
const discoverTimeout = 3 * time.Second

const (
	discoverID   = `1`
	initializeID = `2`

	discoverMessage = `{"jsonrpc":"2.0","id":` + discoverID + `,"method":"server/discover","params":{"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"fixpoint-mcp-bridge","version":"v1beta1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}}}`
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
}

func (e *HandshakeError) Error() string {
	message := "the command did not complete an MCP handshake on its standard output: " + e.Problem
	if e.Stderr != "" {
		message += "; stderr: " + e.Stderr
	}
	return message
}

// Check starts the command once and makes an MCP handshake, which also detects
// the spec versions of the server. The error is a CommandError or a
// HandshakeError if the command causes it.
func (b *Bridge) Check(ctx context.Context) error {
	_, err := b.isStateless(ctx)
	return err
}

// isStateless reports whether the server supports the stateless spec version, and caches the result.
func (b *Bridge) isStateless(ctx context.Context) (bool, error) {
	select {
	case b.probing <- struct{}{}:
		defer func() { <-b.probing }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if known := b.stateless.Load(); known != nil {
		return *known, nil
	}
	stateless, err := b.probe(ctx)
	var broken *HandshakeError
	if errors.As(err, &broken) && ctx.Err() == nil {
		// Some servers fail on server/discover.
		stateless, err = b.probeWith(ctx, initializeMessage)
	}
	if err != nil {
		return false, err
	}
	b.stateless.Store(&stateless)
	b.opts.Log.Info("Handshake with the server succeeded", "stateless", stateless)
	return stateless, nil
}

// checkServerStateless rejects a stateless request to a server that requires
// sessions, with errors that make clients fall back to initialize.
func (b *Bridge) checkServerStateless(ctx context.Context, e *envelope) *failure {
	stateless, err := b.isStateless(ctx)
	switch {
	case err != nil:
		b.opts.Log.Error(err, "Failed to detect the spec versions of the server")
		return refused(reasonStartFailed, "the MCP server process does not respond", 5)
	case stateless:
		return nil
	case e.Method == methodDiscover:
		return &failure{status: http.StatusNotFound, code: codeMethodNotFound, message: "this server requires a session: send initialize"}
	default:
		f := badRequest(codeUnsupportedVersion, "this server requires a session: send initialize")
		f.data = map[string]any{"supported": sessionVersions, "requested": text(e.Params.Meta.ProtocolVersion)}
		return f
	}
}

func (b *Bridge) probe(ctx context.Context) (bool, error) {
	return b.probeWith(ctx, discoverMessage)
}

// probeWith makes a handshake with a new child, starting with the given message.
func (b *Bridge) probeWith(ctx context.Context, first string) (bool, error) {
	c, err := b.launcher.start(b.opts.Log.WithValues("session", "check"), b.sharedUser)
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

// reply is a message of a child during a handshake.
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
	child   *child
	lines   <-chan reply
	timeout time.Duration
}

// run returns whether the server is stateless, or a description of the problem.
func (h *handshake) run(ctx context.Context, first string) (bool, string) {
	// send blocks while the child does not read.
	go func() { _ = h.child.send([]byte(first)) }()
	discover := time.NewTimer(discoverTimeout)
	defer discover.Stop()
	timeout := time.NewTimer(h.timeout)
	defer timeout.Stop()
	initializeSent := first == initializeMessage
	initialize := func() {
		if !initializeSent {
			initializeSent = true
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
		case <-discover.C:
			initialize()
		case <-timeout.C:
			return false, fmt.Sprintf("no response within %s", h.timeout)
		case <-ctx.Done():
			return false, "the check was cancelled"
		}
	}
}

// end describes the end of a child that has closed its standard output.
func (h *handshake) end() string {
	if !h.child.waitFor(h.child.grace) {
		return "it closed its standard output"
	}
	<-h.child.stderr.done
	return "it exited with " + h.child.exit()
}

func initialized(e envelope) (bool, string) {
	if present(e.Error) {
		return false, "it rejected initialize: " + string(e.Error)
	}
	return false, ""
}

// discovered reports whether a response to server/discover lists a stateless
// spec version.
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
