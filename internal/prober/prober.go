package prober

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/types"
)

// Prober probes MCP servers. Its methods are safe for concurrent use, also before Start, and do not wait
// for servers.
type Prober struct {
	options Options
	client  *mcp.Client
	metrics *metrics
	probe   func(context.Context, job) answer
	random  func() float64
	wake    chan struct{}
	running sync.WaitGroup
	texts   *texts

	mu      sync.Mutex
	entries map[types.NamespacedName]*entry
	// namespaces are those of the entries.
	namespaces map[string]*namespace
	queue      *queue
	// nextWake is when the timer of the scheduler fires.
	nextWake    time.Time
	subscribers []func(types.NamespacedName)
	// changed are the keys whose subscribers have not been notified yet.
	changed map[types.NamespacedName]struct{}
}

// entry is a target with one token. A new token creates a new entry.
type entry struct {
	key    types.NamespacedName
	target Target
	// url, header and tls are parsed from target; invalid is the error if target is invalid.
	url          *url.URL
	header       http.Header
	tls          *tls.Config
	invalid      *Error
	members      []*member
	server       *Server
	listSchedule listSchedule
	listErr      *Error
	// contract is that of all members, the last time that they agreed.
	contract    *Contract
	contractErr *Error
	namespace   *namespace
	// notified is the last Result that subscribers were notified of.
	notified Result
}

// member is one replica of an entry.
type member struct {
	entry    *entry
	address  string
	identity string
	history  history
	// fresh is true if the next probe was requested instead of scheduled by the interval.
	fresh bool
	// slow is true if the last probe took longer than promptLimit.
	slow bool
	// due is when the next probe should start.
	due time.Time
	// lastAnswer is the start of the last probe that succeeded, or to which the server responded with 401 or 403.
	lastAnswer time.Time
	// version is the protocol version to request; empty means the newest.
	version string
	// contract is what the replica offered when it was last listed; nil if it has not been listed. listSchedule is
	// when it may be listed for its contract.
	contract     *Contract
	listSchedule listSchedule
	// unready is true if the address is one of Target.Unready. unlisted is true if the last probe succeeded and was to
	// read the lists, and the slot for that was taken. offerErr is why the last probe could not read them, and refusal the
	// last error of content since they were read.
	unready, unlisted bool
	offerErr, refusal *Error

	// cancel ends the running probe; nil if none runs.
	cancel context.CancelFunc
	// restart is true if the result of the running probe is outdated and another probe is due. removed
	// is true if the replica is no longer probed. displaced is true if the running probe ends because
	// another one needs its slot; it is repeated in the slow lane.
	restart, removed, displaced bool
	// started is when the running probe started, and lane is where it has its slot. stuck is true if it
	// runs longer than promptLimit and the slow lane had no slot.
	started time.Time
	lane    *lane
	stuck   bool

	// Position in the queue.
	line     *line
	index    int
	rank     time.Time
	sequence uint64
}

// namespace is what the entries of a namespace share.
type namespace struct {
	entries int
	// lists is held while the lists of a server are read.
	lists *semaphore.Weighted
}

func (m *member) namespace() string { return m.entry.key.Namespace }

// before is the order of replicas in a line.
func (m *member) before(other *member) bool {
	if m.rank.Equal(other.rank) {
		return m.sequence < other.sequence
	}
	return m.rank.Before(other.rank)
}

// slack is how long the start of a probe may be delayed.
func (m *member) slack() time.Duration {
	if m.fresh || m.history.failures > 0 && m.history.state != Failing {
		return 0
	}
	return m.entry.target.Interval
}

// Set sets what to probe for a key. It is cheap if nothing has changed, and should be called in every
// reconcile. New replicas are probed immediately; so are all replicas if the token, the URL or the
// transport changes. If only the credential or the CA changes, all replicas are probed immediately and
// the previous result stays until then.
func (p *Prober) Set(key types.NamespacedName, target Target) {
	target = target.complete()
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[key]
	if e == nil || !e.target.sameServer(target) {
		old := e
		e = &entry{key: key, namespace: p.joinNamespace(key.Namespace)}
		p.entries[key] = e
		if old != nil {
			p.drop(old)
		}
	}
	before := e.target
	e.target = target
	if e.members == nil || !before.sameRequest(target) {
		e.prepare(p.options.Rewrite)
		p.refresh(e)
	} else if before.Interval != target.Interval {
		p.reschedule(e)
	}
	p.updateMembers(e)
	if before.Version != target.Version || before.Contract != target.Contract {
		p.probeServerInfo(e)
	}
	p.updateState(e)
	p.wakeScheduler()
}

// Forget stops probing a key. A running probe is cancelled and its result dropped.
func (p *Prober) Forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.entries[key]; e != nil {
		p.drop(e)
		delete(p.entries, key)
	}
}

// Result is the latest result for the current token of a key; false if the key is not set. The caller
// must not modify what it points to.
func (p *Prober) Result(key types.NamespacedName) (Result, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[key]
	if e == nil {
		return Result{}, false
	}
	return e.result(), true
}

// DialsReplicas reports whether probes connect to the addresses of the replicas, which Options.Rewrite
// disables.
func (p *Prober) DialsReplicas() bool { return p.options.Rewrite == nil }

// updateMembers adds and removes members as the target names them, and keeps the history of the others.
func (p *Prober) updateMembers(e *entry) {
	known := make(map[string]*member, len(e.members))
	for _, m := range e.members {
		known[m.address] = m
	}
	// The first member is that of the description of the server, so serving ones precede.
	addresses := slices.Concat(e.target.Addresses, e.target.Unready)
	members := make([]*member, 0, len(addresses))
	for i, address := range addresses {
		identity := e.target.Identities[address]
		m := known[address]
		if m == nil || m.identity != identity {
			m = &member{entry: e, address: address, identity: identity, history: history{state: Unknown}}
			p.enqueueFresh(m)
		} else {
			delete(known, address)
		}
		m.unready = i >= len(e.target.Addresses)
		members = append(members, m)
	}
	for _, m := range known {
		p.removeMember(m)
	}
	e.members = members
}

// probeServerInfo makes a full probe of the first replica due immediately.
func (p *Prober) probeServerInfo(e *entry) {
	e.listSchedule.next, e.listSchedule.failures = time.Time{}, 0
	m := e.members[0]
	m.version = ""
	if m.cancel != nil || m.fresh {
		return // a probe runs or is due
	}
	p.queue.remove(m)
	p.enqueueFresh(m)
}

// refresh makes a probe of every member due immediately.
func (p *Prober) refresh(e *entry) {
	e.listSchedule = listSchedule{}
	for _, m := range e.members {
		m.version, m.listSchedule = "", listSchedule{}
		if m.cancel != nil {
			m.restart = true
			m.cancel()
			continue
		}
		p.queue.remove(m)
		p.enqueueFresh(m)
	}
}

// reschedule spreads the next probes over a changed interval.
func (p *Prober) reschedule(e *entry) {
	now := p.options.Clock.Now()
	for _, m := range e.members {
		if m.cancel != nil || m.fresh {
			continue
		}
		p.queue.remove(m)
		m.due = now.Add(p.spread(e.target.Interval))
		p.queue.add(m)
	}
}

func (p *Prober) enqueueFresh(m *member) {
	m.fresh, m.slow = true, false
	m.due = p.options.Clock.Now()
	p.queue.add(m)
}

func (p *Prober) drop(e *entry) {
	for _, m := range e.members {
		p.removeMember(m)
	}
	p.leaveNamespace(e.key.Namespace)
}

func (p *Prober) joinNamespace(name string) *namespace {
	n := p.namespaces[name]
	if n == nil {
		n = &namespace{lists: semaphore.NewWeighted(1)}
		p.namespaces[name] = n
	}
	n.entries++
	return n
}

func (p *Prober) leaveNamespace(name string) {
	n := p.namespaces[name]
	if n.entries--; n.entries == 0 {
		delete(p.namespaces, name)
	}
}

func (p *Prober) removeMember(m *member) {
	m.removed = true
	p.queue.remove(m)
	if m.cancel != nil {
		m.cancel()
	}
}

// result combines the histories of the members.
func (e *entry) result() Result {
	histories := make([]history, 0, len(e.members))
	for _, m := range e.members {
		if !m.unready {
			histories = append(histories, m.history)
		}
	}
	result := aggregate(histories)
	result.Offers = e.offers()
	result.Server = e.server
	result.ListErr = e.listErr
	result.Contract, result.ContractErr = e.contract, e.contractErr
	return result
}

// updateState updates the state of the entry and notifies subscribers of changes that a status shows.
func (p *Prober) updateState(e *entry) {
	e.agree()
	result := e.result()
	if e.notified.State == "" {
		// The caller of the first Set knows that there is no result yet.
		e.notified = result
		return
	}
	if !result.sameStatus(e.notified) {
		e.notified = result
		p.markChanged(e.key)
	}
}

// wakeScheduler lets the scheduler read the queue again.
func (p *Prober) wakeScheduler() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}
