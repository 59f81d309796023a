package prober

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/apimachinery/pkg/types"
)

// Prober asks MCP servers whether the protocol answers. Its methods may be called from many
// goroutines, before Start too, and none of them waits for a server.
type Prober struct {
	options Options
	client  *mcp.Client
	metrics *metrics
	probe   func(context.Context, job) answer
	random  func() float64
	wake    chan struct{}
	running sync.WaitGroup

	mu      sync.Mutex
	entries map[types.NamespacedName]*entry
	queue   *queue
	// alarm is when the scheduler wakes by itself.
	alarm       time.Time
	subscribers []func(types.NamespacedName)
	// news are the keys whose change is still to be told.
	news map[types.NamespacedName]struct{}
}

// entry is a target under one token. Another token makes another entry.
type entry struct {
	key    types.NamespacedName
	target Target
	// url, header and tls are what target says, parsed; invalid says why they could not be.
	url     *url.URL
	header  http.Header
	tls     *tls.Config
	invalid *Error
	members []*member
	server  *Server
	catalog catalog
	state   State
	since   time.Time
	// told is the last Result that was notified.
	told Result
}

// member is one replica of an entry.
type member struct {
	entry    *entry
	address  string
	identity string
	history  history
	// fresh is a replica whose next probe was asked for and does not come of the interval.
	fresh bool
	// slow is a replica that let its last probe time out.
	slow bool
	// due is when the next probe should start.
	due time.Time
	// lastAnswer is when the last probe that was answered started.
	lastAnswer time.Time
	// version is the protocol version to ask for first; empty means the newest.
	version string

	// cancel ends the probe that runs; nil if none does.
	cancel context.CancelFunc
	// again is a replica whose running probe has been overtaken: its outcome does not count, and
	// another probe is due. One that is gone has no other probe.
	again, gone bool

	// Where it stands in the queue.
	line     *line
	index    int
	rank     time.Time
	sequence uint64
	inSlow   bool
}

// before orders replicas in a line.
func (m *member) before(other *member) bool {
	if m.rank.Equal(other.rank) {
		return m.sequence < other.sequence
	}
	return m.rank.Before(other.rank)
}

// slack is how long a probe may start after it is due without anybody being the worse for it.
func (m *member) slack() time.Duration {
	if m.fresh || m.history.failures > 0 && m.history.state != Failing {
		return 0
	}
	return m.entry.target.Interval
}

// Set declares what to probe under a key. It is cheap if nothing has changed, and is meant to be
// called on every reconcile. New replicas, and all of them if the token, the URL or the transport
// is new, are probed at once; if only what is sent or trusted has changed, what was found stays
// until the next probe, which is due at once too.
func (p *Prober) Set(key types.NamespacedName, target Target) {
	target = target.complete()
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[key]
	if e != nil && !e.target.sameServer(target) {
		p.drop(e)
		e = nil
	}
	if e == nil {
		e = &entry{key: key, state: Unknown, since: p.options.Clock.Now()}
		p.entries[key] = e
	}
	before := e.target
	e.target = target
	if e.members == nil || !before.sameRequest(target) {
		e.prepare(p.options.Rewrite)
		p.refresh(e)
	} else if before.Interval != target.Interval {
		p.reschedule(e)
	}
	p.arrange(e)
	if before.Version != target.Version {
		p.introduce(e)
	}
	p.judge(e)
	p.rouse()
}

// Forget ends the probing of a key. A probe that runs is cut short, and its outcome is dropped.
func (p *Prober) Forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.entries[key]; e != nil {
		p.drop(e)
		delete(p.entries, key)
	}
}

// Result is what is known of a key under its current token; false if the key was not Set. The
// caller must not change what it points to.
func (p *Prober) Result(key types.NamespacedName) (Result, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[key]
	if e == nil {
		return Result{}, false
	}
	return e.result(), true
}

// arrange makes the members those that the target names, keeping what is known of those that stay.
func (p *Prober) arrange(e *entry) {
	known := make(map[string]*member, len(e.members))
	for _, m := range e.members {
		known[m.address] = m
	}
	members := make([]*member, 0, len(e.target.Addresses))
	for _, address := range e.target.Addresses {
		identity := e.target.Identities[address]
		m := known[address]
		if m == nil || m.identity != identity {
			m = &member{entry: e, address: address, identity: identity, history: history{state: Unknown}}
			p.enqueueFresh(m)
		} else {
			delete(known, address)
		}
		members = append(members, m)
	}
	for _, m := range known {
		p.retire(m)
	}
	e.members = members
}

// introduce asks the replica that speaks for the server at once, and for everything.
func (p *Prober) introduce(e *entry) {
	e.catalog.next, e.catalog.failures = time.Time{}, 0
	m := e.members[0]
	m.version = ""
	if m.cancel != nil || m.fresh {
		return // it is asked, or about to be
	}
	p.queue.remove(m)
	p.enqueueFresh(m)
}

// refresh makes a probe of every member due at once.
func (p *Prober) refresh(e *entry) {
	e.catalog = catalog{}
	for _, m := range e.members {
		m.version = ""
		if m.cancel != nil {
			m.again = true
			m.cancel()
			continue
		}
		p.queue.remove(m)
		p.enqueueFresh(m)
	}
}

// reschedule spreads the next probes over an interval that has changed.
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
		p.retire(m)
	}
}

func (p *Prober) retire(m *member) {
	m.gone = true
	p.queue.remove(m)
	if m.cancel != nil {
		m.cancel()
	}
}

// result is what the members' histories come to now.
func (e *entry) result() Result {
	histories := make([]history, len(e.members))
	for i, m := range e.members {
		histories[i] = m.history
	}
	result := aggregate(histories)
	result.Server = e.server
	result.Since = e.since
	return result
}

// judge brings the entry's state up to date and tells subscribers of what a status would show.
func (p *Prober) judge(e *entry) {
	result := e.result()
	if result.State != e.state {
		e.state, e.since = result.State, p.options.Clock.Now()
		result.Since = e.since
	}
	if e.told.State == "" {
		// Whoever calls Set for the first time knows that there is no result yet.
		e.told = result
		return
	}
	if !result.shows(e.told) {
		e.told = result
		p.notify(e.key)
	}
}

// rouse lets the scheduler look at the queue again.
func (p *Prober) rouse() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}
