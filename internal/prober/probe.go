package prober

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// statelessVersion is the first protocol version without sessions.
	statelessVersion = "2026-07-28"
	// sessionVersion is what is asked for of a server that is known to have sessions, which saves
	// asking for the newest first.
	sessionVersion = "2025-11-25"
)

const (
	// handshakeBytes is how much of the answers to a handshake is read.
	handshakeBytes = 1 << 20
	// listBytes is how much more is read to count tools, prompts and resources.
	listBytes = 4 << 20
)

// job is one probe to make.
type job struct {
	url       *url.URL
	tls       *tls.Config
	invalid   *Error
	address   string
	transport Transport
	header    http.Header
	timeout   time.Duration
	started   time.Time
	// version is the protocol version to ask for; empty means the newest.
	version string
	// list is whether to count tools, prompts and resources too.
	list bool
}

// answer is what a probe has found.
type answer struct {
	// err is why there was no answer; nil if there was.
	err    *Error
	server Server
	// version is the protocol version to ask for the next time.
	version string
	// counted is whether the numbers of tools, prompts and resources are all known.
	counted bool
}

// shake makes one handshake, and leaves neither a session nor a connection behind. Whether the
// server can be counted on to list its tools does not decide whether it answers.
func (p *Prober) shake(ctx context.Context, j job) answer {
	if j.invalid != nil {
		return answer{err: j.invalid}
	}
	ctx, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	w := newWire(ctx, j, p.options.Dial)
	defer w.close()
	session, failure := p.connect(ctx, j, w)
	if failure != nil {
		return answer{err: failure}
	}
	defer w.closeSession(session)
	found := session.InitializeResult()
	a := answer{server: describe(found)}
	if found.ProtocolVersion < statelessVersion {
		a.version = sessionVersion
	}
	if j.list {
		w.allow(listBytes)
		a.counted = count(ctx, session, found.Capabilities, &a.server)
	}
	return a
}

func (p *Prober) connect(ctx context.Context, j job, w *wire) (*mcp.ClientSession, *Error) {
	version := j.version
	if j.transport == SSE {
		version = sessionVersion
	}
	session, err := p.client.Connect(ctx, w.transport(), &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err == nil {
		return session, nil
	}
	failure := w.explain(ctx, err)
	if version != "" || !w.onlyDiscovered() {
		return nil, failure
	}
	// An older server may answer what it does not know with what the SDK does not expect, and the
	// SDK then gives up without an initialize. Other clients do not, so the probe does not either.
	w.reset()
	session, err = p.client.Connect(ctx, w.transport(), &mcp.ClientSessionOptions{ProtocolVersion: sessionVersion})
	if err != nil {
		return nil, w.explain(ctx, err)
	}
	return session, nil
}
