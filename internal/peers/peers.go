package peers

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// Options say what the replicas share, and where this one is.
type Options struct {
	// KeyDirectory has the keys that the replicas share: files of KeyBytes random bytes, named by the time of their
	// creation (KeyName). The newest key that is older than KeyActivation seals ids, or else the oldest; all keys open
	// ids. The directory may change at any time.
	KeyDirectory string
	// Server distinguishes servers, such as the UID of an object. Ids of other servers are not accepted.
	Server string
	// Address is where other replicas reach the peer listener of this one.
	Address netip.AddrPort
	// ConnectTimeout is the time to connect to another replica, after which it counts as gone.
	ConnectTimeout time.Duration
}

// Complete sets defaults, and validates the options.
func (o *Options) Complete() error {
	var errs []error
	if o.KeyDirectory == "" {
		errs = append(errs, errors.New("the directory of session keys is missing: set -session-keys"))
	}
	if o.Server == "" {
		errs = append(errs, errors.New("the id of the server is missing: set -server-id"))
	}
	if !o.Address.IsValid() || o.Address.Addr().IsUnspecified() || o.Address.Port() == 0 {
		errs = append(errs, errors.New("the address of the peer listener for other replicas is missing: set -peer-ip"))
	}
	switch {
	case o.ConnectTimeout == 0:
		o.ConnectTimeout = defaultConnectTimeout
	case o.ConnectTimeout < 0:
		errs = append(errs, errors.New("ConnectTimeout must not be negative"))
	}
	return errors.Join(errs...)
}

const (
	defaultConnectTimeout = 3 * time.Second
	// userTimeout is the time without acknowledgement after which another replica is gone.
	userTimeout = 20 * time.Second
	// keepAlive is how long the peer listener keeps idle connections.
	keepAlive = 2 * time.Minute
	// streamGrace is the time for another replica to end a stream. It is shorter than the time that servers have to send
	// responses when they shut down: they would cut the stream, and the client would take that for an error.
	streamGrace = 750 * time.Millisecond
	// idleTimeout is how long this replica keeps idle connections: shorter than the other end, which would otherwise
	// close one at the moment of a request.
	idleTimeout = keepAlive / 4
	// maxIdleConnections is the maximum number of idle connections to one replica.
	maxIdleConnections = 64
)

// Outcomes of forwarded requests.
const (
	Relayed        = "relayed"
	ReplicaGone    = "replica_gone"
	Failed         = "failed"
	ClientLeft     = "client_left"
	ReplicaDrained = "draining"
)

// Program is what receives requests of clients, and forwards them. Functions may be nil.
type Program struct {
	Log logr.Logger
	// WriteTimeout is the time in which a client must receive a part of a response; 0 is no limit.
	WriteTimeout time.Duration
	// Refuse responds to a request; the default is [Refusal.Write].
	Refuse func(w http.ResponseWriter, id json.RawMessage, refusal *Refusal)
	// EndStream has another replica complete the stream of a request, before this replica ends it.
	EndStream func(r *http.Request, to netip.AddrPort) error
	// Count counts a forwarded request by its outcome.
	Count func(outcome string)
	// Changed is called when a forwarded request other than a stream has ended.
	Changed func()
}

func (p *Program) complete() {
	if p.Log.GetSink() == nil {
		p.Log = logr.Discard()
	}
	if p.Refuse == nil {
		p.Refuse = func(w http.ResponseWriter, id json.RawMessage, refusal *Refusal) { refusal.Write(w, id) }
	}
	if p.EndStream == nil {
		p.EndStream = func(*http.Request, netip.AddrPort) error { return errors.ErrUnsupported }
	}
	if p.Count == nil {
		p.Count = func(string) {}
	}
	if p.Changed == nil {
		p.Changed = func() {}
	}
}

// Peers forwards requests of sessions to the replicas that have them, and authenticates those that other replicas
// forward. A nil Peers is that of a program without other replicas.
type Peers struct {
	program   Program
	keys      *keyring
	self      netip.AddrPort
	transport *http.Transport

	// closing is done when the program closes, streams when it is about to: streams never end by themselves.
	closing, streams       context.Context
	endClosing, endStreams context.CancelFunc

	mu sync.Mutex
	// calls are the forwarded requests in flight, without streams.
	calls int
	// used is when the last of them ended.
	used time.Time
}

// New returns nil without options. It fails if there is no session key.
func New(o *Options, program Program) (*Peers, error) {
	if o == nil {
		return nil, nil
	}
	if err := o.Complete(); err != nil {
		return nil, err
	}
	program.complete()
	keys, err := newKeyring(o.KeyDirectory, o.Server, program.Log)
	if err != nil {
		return nil, err
	}
	p := &Peers{program: program, keys: keys, self: o.Address}
	p.closing, p.endClosing = context.WithCancel(context.Background())
	p.streams, p.endStreams = context.WithCancel(p.closing)
	p.transport = newTransport(keys, o.ConnectTimeout)
	return p, nil
}

func newTransport(keys *keyring, connectTimeout time.Duration) *http.Transport {
	dialer := &tls.Dialer{Config: keys.tlsConfig(), NetDialer: &net.Dialer{
		Control:         failAfter(userTimeout),
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: userTimeout / 2, Interval: userTimeout / 4, Count: 2},
	}}
	return &http.Transport{
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, connectTimeout)
			defer cancel()
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, &unreachable{err}
			}
			return conn, nil
		},
		DisableCompression:  true,
		IdleConnTimeout:     idleTimeout,
		MaxIdleConnsPerHost: maxIdleConnections,
	}
}

// unreachable is the error of a replica to which no connection could be opened, so it has received no request.
type unreachable struct{ err error }

func (u *unreachable) Error() string { return fmt.Sprintf("connecting to the replica: %v", u.err) }

func (u *unreachable) Unwrap() error { return u.err }

// Seal returns the id, for clients, of a session of this replica that has the local id. Without other replicas, that is
// the id.
func (p *Peers) Seal(local string) (string, error) {
	if p == nil {
		return local, nil
	}
	return p.keys.sealID(p.self, local)
}

// Open returns the replica that has a session, and its local id there.
func (p *Peers) Open(id string) (replica netip.AddrPort, local string, err error) {
	return p.keys.openID(id)
}

// Self is the address of this replica in session ids.
func (p *Peers) Self() netip.AddrPort { return p.self }

// Owner returns the other replica that has a session.
func (p *Peers) Owner(id string) (netip.AddrPort, bool) {
	if p == nil {
		return netip.AddrPort{}, false
	}
	replica, _, err := p.keys.openID(id)
	return replica, err == nil && replica != p.self
}

// UsedWithin reports whether a forwarded request is pending or ended less than d ago.
func (p *Peers) UsedWithin(d time.Duration) bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls > 0 || !p.used.IsZero() && time.Since(p.used) < d
}

// Quiet reports whether no forwarded request is pending, beside streams.
func (p *Peers) Quiet() bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls == 0
}

// FinishStreams ends the forwarded streams within streamGrace, and refuses further ones. Clients open them again, on another
// replica.
func (p *Peers) FinishStreams() {
	if p != nil {
		p.endStreams()
	}
}

// Close ends all forwarded requests; streams as FinishStreams does.
func (p *Peers) Close() {
	if p != nil {
		p.endClosing()
		p.transport.CloseIdleConnections()
	}
}
