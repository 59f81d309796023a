package harness

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/fixpoint-dev/fixpoint/controllers"
)

// Manager is a manager that runs in this process.
type Manager struct {
	Log     *Log
	cancel  context.CancelFunc
	stopped chan struct{}
	err     error
}

// StartManager runs a manager until the test ends or stops it. A manager that ends with an error fails
// the test.
func (e *Env) StartManager(cfg *rest.Config, o controllers.Options) *Manager {
	e.T.Helper()
	m := &Manager{Log: &Log{}, stopped: make(chan struct{})}
	o.Logger = m.Log.logger(e.Suite.verbosity)
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	mgr, err := controllers.NewManager(ctx, cfg, o)
	e.Expect(err).NotTo(gomega.HaveOccurred())
	go func() {
		defer close(m.stopped)
		m.err = mgr.Start(ctx)
	}()
	e.Managers = append(e.Managers, m)
	e.T.Cleanup(func() {
		if err := m.end(); err != nil {
			e.T.Errorf("a manager ended with an error: %v", err)
		}
	})
	return m
}

// Stop ends the manager gracefully and returns when nothing of it runs.
func (e *Env) Stop(m *Manager) {
	e.T.Helper()
	e.Expect(m.end()).To(gomega.Succeed(), "a manager that is stopped ends without an error")
}

func (m *Manager) end() error {
	m.cancel()
	select {
	case <-m.stopped:
		return m.err
	case <-time.After(Timeout):
		return fmt.Errorf("the manager did not end within %s", Timeout)
	}
}

// Checks is how often the manager has found the child of a phase to be as desired.
func (m *Manager) Checks(kind, name, phase string) int {
	return m.Log.Count("Child is as desired", fmt.Sprintf(`"phase"=%q`, phase), fmt.Sprintf(`%q={"name"=%q`, kind, name))
}

// Checked returns when the manager that was started last has found the child of a phase to be as desired
// so many times from now on.
func (e *Env) Checked(kind, name, phase string, times int) {
	e.T.Helper()
	m := e.Managers[len(e.Managers)-1]
	checks := func() int { return m.Checks(kind, name, phase) }
	before := checks()
	e.Eventually(checks).Should(gomega.BeNumerically(">=", before+times), "checks of the %s of %s", phase, name)
}

// ReadsStale says whether a cache of a manager has lagged so far behind its own writes that it went on without them. It
// may then repeat a write, which is refused or changes nothing.
func (e *Env) ReadsStale() bool {
	return slices.ContainsFunc(e.Managers, func(m *Manager) bool {
		return m.Log.Count("Timed out waiting for the cache to contain the manager's own writes") > 0
	})
}

// Log holds what a manager logs, debug lines included.
type Log struct {
	mu    sync.Mutex
	lines []string
}

func (l *Log) logger(verbosity int) logr.Logger {
	return funcr.New(func(prefix, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, prefix+" "+args)
	}, funcr.Options{Verbosity: verbosity, LogTimestamp: true})
}

// Lines are all lines so far.
func (l *Log) Lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// Count is how many lines contain all of the texts.
func (l *Log) Count(texts ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := 0
	for _, line := range l.lines {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			count++
		}
	}
	return count
}

// Tail is the last lines.
func (l *Log) Tail(n int) string {
	lines := l.Lines()
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
