package prober

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/semaphore"
)

const (
	// statelessVersion is the first protocol version without sessions.
	statelessVersion = "2026-07-28"
	// sessionVersion is requested from servers that are known to use sessions, which saves the attempt
	// with the newest version.
	sessionVersion = "2025-11-25"
)

const (
	// handshakeBytes limits the responses of a handshake.
	handshakeBytes = 1 << 20
	// listBytes is the additional limit for counting tools, prompts and resources.
	listBytes = 4 << 20
	// listWait is how long a probe waits for the list of another server of its namespace.
	listWait = 500 * time.Millisecond
)

// job is one probe to run.
type job struct {
	url     *url.URL
	tls     *tls.Config
	invalid *Error
	address string
	// host is the Host of requests; that of the URL if empty.
	host      string
	transport Transport
	header    http.Header
	timeout   time.Duration
	started   time.Time
	// version is the protocol version to request; empty means the newest.
	version string
	// list also counts tools, prompts and resources. lists is the semaphore of the namespace for that. full is true
	// if the description of the server is due, and contract if the contract is derived as well.
	list, full, contract bool
	lists                *semaphore.Weighted
	// targetVersion is Target.Version when the probe started.
	targetVersion string
}

// answer is the result of one probe.
type answer struct {
	// err is nil if the handshake succeeded.
	err    *Error
	server Server
	// version is the protocol version for the next probe.
	version string
	// listed reports whether the lists were read, and listErr is the first error, if any.
	listed  bool
	listErr *Error
	// contract is what the server offers; nil if it is not asked for, or not known because of contractErr or listErr.
	contract    *Contract
	contractErr *Error
}

// counted reports whether tools, prompts and resources were all counted.
func (a answer) counted() bool { return a.listed && a.listErr == nil }

// handshake makes one handshake and closes its session and connections. Lists that cannot be read do not
// fail the probe.
func (p *Prober) handshake(ctx context.Context, j job) answer {
	if j.invalid != nil {
		return answer{err: j.invalid}
	}
	ctx, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	w := newProbeTransport(ctx, j, p.options.Dial)
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
		p.list(ctx, j, w, session, &a)
	}
	return a
}

// list reads the lists of a server, unless those of another server of the namespace take too long.
func (p *Prober) list(ctx context.Context, j job, w *probeTransport, session *mcp.ClientSession, a *answer) {
	waiting, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	if err := j.lists.Acquire(waiting, 1); err != nil {
		return
	}
	defer j.lists.Release(1)
	w.extendLimit()
	a.listed = true
	declared := session.InitializeResult().Capabilities
	a.listErr = count(ctx, session, declared, w, &a.server)
	if j.contract && a.listErr == nil {
		a.contract, a.contractErr = deriveContract(ctx, session, declared, w)
		p.texts.take(a.contract)
	}
}

func (p *Prober) connect(ctx context.Context, j job, w *probeTransport) (*mcp.ClientSession, *Error) {
	version := j.version
	if j.transport == SSE {
		version = sessionVersion
	}
	session, err := p.client.Connect(ctx, w.transport(), &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err == nil {
		return session, nil
	}
	failure := w.classifyError(ctx, err)
	if version != "" || !w.onlyDiscovered() {
		return nil, failure
	}
	// Older servers may respond to the unknown server/discover in a way that makes the SDK give up. Other
	// clients then try initialize, so the probe does, too.
	w.reset()
	session, err = p.client.Connect(ctx, w.transport(), &mcp.ClientSessionOptions{ProtocolVersion: sessionVersion})
	if err != nil {
		return nil, w.classifyError(ctx, err)
	}
	return session, nil
}
