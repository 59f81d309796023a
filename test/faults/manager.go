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

	world    *World
	wire     *wire
	activity *activity
	cancel   context.CancelFunc
	crashed  chan struct{}
	once     sync.Once
	stopped  chan struct{}
	err      error
}

// Past says from when a manager's first look at a kind is: by resource, such as deployments, the
// revision at which its cache begins. What came later is held back until [Manager.Release].
type Past map[string]int64

// Start runs a manager with fresh caches.
func (w *World) Start() (*Manager, error) { return w.StartInThePast(nil) }

// StartInThePast runs a manager whose caches begin in the past, and stay there until they are released.
func (w *World) StartInThePast(past Past) (*Manager, error) {
	w.mu.Lock()
	m := &Manager{
		Number: len(w.managers) + 1, world: w, activity: newActivity(),
		crashed: make(chan struct{}), stopped: make(chan struct{}),
	}
	w.managers = append(w.managers, m)
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.wire = newWire(w, m, past)
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
	config := rest.AnonymousClientConfig(m.world.Bench.config)
	config.TLSClientConfig = rest.TLSClientConfig{}
	config.Transport = m.wire
	config.ContentType = "application/json"
	return config
}

func (m *Manager) options() controllers.Options {
	const few = 4
	options := controllers.Options{
		Namespaces:    []string{m.world.Namespace},
		Controllers:   controllersOf(m.world.Kinds),
		Concurrency:   few,
		ProbeEndpoint: m.world.Bench.probeEndpoint(),
		Logger:        m.activity.logger(),
	}
	if m.world.Cloud != nil {
		options.Cloud = cloud.Config{Cloud: fakecloud.CloudAt("http://cloud.test"), AllowHTTP: true, Transport: cloudWire{m.wire}}
		options.Credentials = cloud.TokenCredentials{Token: fakecloud.Token("manager")}
	}
	return options
}

// Crash ends the manager as a crash does: no call of it goes out any more, and no answer comes in.
func (m *Manager) Crash() {
	m.once.Do(func() {
		m.wire.cut()
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
var errStays = errors.New("a manager that was stopped did not end")

// ended waits until nothing of a crashed manager runs any more.
func (m *Manager) ended() error {
	const patience = time.Minute
	select {
	case <-m.stopped:
		return nil // what it fails with says only that no call went through
	case <-time.After(patience):
		return fmt.Errorf("manager %d of %s: %w", m.Number, m.world.Namespace, errStays)
	}
}

// Hold holds back what watches tell of the resource, such as deployments, until [Manager.Release].
func (m *Manager) Hold(resource string) { m.wire.gate(resource).close() }

// Release lets go what was held back of the resource, and all that comes.
func (m *Manager) Release(resource string) {
	m.wire.present(resource)
	m.wire.gate(resource).open()
}

// Cut breaks the watches of the resource in the middle of an event. With expired, they end in the API
// server's words for a watch that has fallen behind.
func (m *Manager) Cut(resource string, expired bool) { m.wire.cutStreams(resource, expired) }

// Looked says how often the manager has looked at the object.
func (m *Manager) Looked(name string) int { return m.activity.looked(name) }

// IdleFor is how long no reconcile has run; 0 while one does.
func (m *Manager) IdleFor() time.Duration { return m.activity.idleFor() }

// Log is the end of what the manager has logged.
func (m *Manager) Log() []string { return m.activity.log() }
