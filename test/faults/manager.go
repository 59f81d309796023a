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
)

// Manager is a whole manager for the namespace of a world, as cmd/manager builds it, in this process.
type Manager struct {
	// Number counts the managers of the world from 1.
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

// Past says from when a manager's first look at a kind is: by resource, such as deployments, the
// revision at which its cache begins. What came later is held back until [Manager.Release].
type StaleCache map[string]int64

// Start runs a manager with fresh caches.
func (env *Environment) Start() (*Manager, error) { return env.StartWithStaleCache(nil) }

// StartInThePast runs a manager whose caches begin in the past, and stay there until they are released.
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

// config has the wire for a connection. JSON is what the wire can read.
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
	}
	return options
}

// Crash ends the manager as a crash does: no call of it goes out any more, and no answer comes in.
func (m *Manager) Crash() {
	m.once.Do(func() {
		m.transport.cut()
		m.cancel()
		close(m.crashed)
	})
}

// Crashed is closed when the manager has crashed.
func (m *Manager) Crashed() <-chan struct{} { return m.crashed }

// IsCrashed says whether it has.
func (m *Manager) IsCrashed() bool {
	select {
	case <-m.crashed:
		return true
	default:
		return false
	}
}

// errStays is for a manager that was stopped and goes on.
var errNotStopped = errors.New("a manager that was stopped did not end")

// ended waits until nothing of a crashed manager runs any more.
func (m *Manager) waitStopped() error {
	const patience = time.Minute
	select {
	case <-m.stopped:
		return nil // what it fails with says only that no call went through
	case <-time.After(patience):
		return fmt.Errorf("manager %d of %s: %w", m.Number, m.env.Namespace, errNotStopped)
	}
}

// Hold holds back what watches tell of the resource, such as deployments, until [Manager.Release].
func (m *Manager) HoldWatch(resource string) { m.transport.gate(resource).close() }

// Release lets go what was held back of the resource, and all that comes.
func (m *Manager) ReleaseWatch(resource string) {
	m.transport.clearStale(resource)
	m.transport.gate(resource).open()
}

// Cut breaks the watches of the resource in the middle of an event. With expired, they end in the API
// server's words for a watch that has fallen behind.
func (m *Manager) CutWatch(resource string, expired bool) { m.transport.cutWatches(resource, expired) }

// Looked says how often the manager has looked at the object.
func (m *Manager) Reconciles(name string) int { return m.activity.reconcilesOf(name) }

// IdleFor is how long no reconcile has run; 0 while one does.
func (m *Manager) IdleFor() time.Duration { return m.activity.idleFor() }

// Log is the end of what the manager has logged.
func (m *Manager) Log() []string { return m.activity.log() }
