package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// Manager is a complete manager in this process, as cmd/manager builds it, limited to one namespace.
type Manager struct {
	// Number counts the managers of the environment from 1.
	Number int

	env       *Environment
	transport *transport
	activity  *activity
	cancel    context.CancelFunc
	crashed   chan struct{}
	once      sync.Once
	stopped   chan struct{}
	err       error
}

// StaleCache maps resources, such as deployments, to the revision that a cache starts from. Later events
// are held back until [Manager.ReleaseWatch].
type StaleCache map[string]int64

// Start runs a manager with fresh caches.
func (env *Environment) Start() (*Manager, error) { return env.StartWithStaleCache(nil) }

// StartWithStaleCache runs a manager whose caches start from old revisions.
func (env *Environment) StartWithStaleCache(stale StaleCache) (*Manager, error) {
	env.mu.Lock()
	m := &Manager{
		Number: len(env.managers) + 1, env: env, activity: newActivity(),
		crashed: make(chan struct{}), stopped: make(chan struct{}),
	}
	env.managers = append(env.managers, m)
	env.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.transport = newTransport(env, m, stale)
	mgr, err := controllers.NewManager(ctx, m.config(), m.options())
	if err != nil {
		close(m.stopped)
		return nil, fmt.Errorf("building manager %d: %w", m.Number, err)
	}
	go func() {
		defer close(m.stopped)
		m.err = mgr.Start(ctx)
	}()
	return m, nil
}

// config routes all requests through the transport. It uses JSON, which the transport can read.
func (m *Manager) config() *rest.Config {
	config := rest.AnonymousClientConfig(m.env.Cluster.config)
	config.TLSClientConfig = rest.TLSClientConfig{}
	config.Transport = m.transport
	config.ContentType = "application/json"
	return config
}

func (m *Manager) options() controllers.Options {
	const few = 4
	options := controllers.Options{
		Namespaces:    []string{m.env.Namespace},
		Controllers:   controllersOf(m.env.Kinds),
		Concurrency:   few,
		ProbeEndpoint: m.env.Cluster.mcpEndpoint(),
		Logger:        m.activity.logger(),
	}
	if m.env.Cloud != nil {
		options.Cloud = cloud.Config{Cloud: fakecloud.CloudAt("http://cloud.test"), AllowHTTP: true, Transport: cloudTransport{m.transport}}
		options.Credentials = cloud.TokenCredentials{Token: fakecloud.Token("manager")}
		options.AmbientScopes = harness.AmbientScopes()
	}
	return options
}

// Crash simulates a crash: no further request is sent and no response arrives.
func (m *Manager) Crash() {
	m.once.Do(func() {
		m.transport.cut()
		m.cancel()
		close(m.crashed)
	})
}

// Crashed returns a channel that is closed when the manager crashes.
func (m *Manager) Crashed() <-chan struct{} { return m.crashed }

// IsCrashed reports whether the manager has crashed.
func (m *Manager) IsCrashed() bool {
	select {
	case <-m.crashed:
		return true
	default:
		return false
	}
}

// errNotStopped means that a manager still runs after its context was cancelled.
var errNotStopped = errors.New("the manager did not stop")

// waitStopped waits until a crashed manager has stopped.
func (m *Manager) waitStopped() error {
	const timeout = time.Minute
	select {
	case <-m.stopped:
		return nil // its error only says that requests failed
	case <-time.After(timeout):
		return fmt.Errorf("manager %d of %s: %w", m.Number, m.env.Namespace, errNotStopped)
	}
}

// HoldWatch holds back the watch events of a resource, such as deployments, until [Manager.ReleaseWatch].
func (m *Manager) HoldWatch(resource string) { m.transport.gate(resource).close() }

// ReleaseWatch delivers the events that were held back, and all further ones.
func (m *Manager) ReleaseWatch(resource string) {
	m.transport.clearStale(resource)
	m.transport.gate(resource).open()
}

// CutWatch breaks the watches of a resource in the middle of an event, or ends them with 410 Gone if
// expired is true.
func (m *Manager) CutWatch(resource string, expired bool) { m.transport.cutWatches(resource, expired) }

// Reconciles returns how often the manager has reconciled the object.
func (m *Manager) Reconciles(name string) int { return m.activity.reconcilesOf(name) }

// IdleFor returns how long no reconcile has run; 0 while one is running.
func (m *Manager) IdleFor() time.Duration { return m.activity.idleFor() }

// Log returns the last lines of the manager's log.
func (m *Manager) Log() []string { return m.activity.log() }
