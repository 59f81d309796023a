package appservice_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
)

// runningManager is a manager in this process.
type runningManager struct {
	log     *managerLog
	cancel  context.CancelFunc
	stopped chan struct{}
	err     error
}

// startManager runs a manager for the namespace of the test, until the test ends or stops it.
func (w *world) startManager() *runningManager {
	w.t.Helper()
	return w.startManagerAs(shared.Config(managerUser), w.options())
}

// options are those of a manager for the namespace of the test.
func (w *world) options() controllers.Options {
	return controllers.Options{Namespaces: []string{w.namespace}, Controllers: []string{appservice.Name}}
}

func (w *world) startManagerAs(cfg *rest.Config, o controllers.Options) *runningManager {
	w.t.Helper()
	m := &runningManager{log: &managerLog{}, stopped: make(chan struct{})}
	o.Logger = m.log.logger()
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	mgr, err := controllers.NewManager(ctx, cfg, o)
	w.Expect(err).NotTo(HaveOccurred())
	go func() {
		defer close(m.stopped)
		m.err = mgr.Start(ctx)
	}()
	w.managers = append(w.managers, m)
	w.t.Cleanup(m.end)
	return m
}

// stop ends the manager gracefully and returns when nothing of it runs any more.
func (w *world) stop(m *runningManager) {
	w.t.Helper()
	m.end()
	w.Expect(m.err).NotTo(HaveOccurred(), "a manager that is stopped ends without an error")
}

func (m *runningManager) end() {
	m.cancel()
	select {
	case <-m.stopped:
	case <-time.After(patience):
		panic("a manager that is stopped did not end")
	}
}

// looks is how often the manager has found the child of a phase to be as it should.
func (m *runningManager) looks(phase, app string) int {
	return m.log.count("Child is as desired", fmt.Sprintf(`"phase"=%q`, phase), fmt.Sprintf(`"AppService"={"name"=%q`, app))
}

// managerLog holds what a manager logs, debug lines included.
type managerLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *managerLog) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, prefix+" "+args)
	}, funcr.Options{Verbosity: 1, LogTimestamp: true})
}

func (l *managerLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// count is how many lines hold all of the texts.
func (l *managerLog) count(texts ...string) int {
	count := 0
	for _, line := range l.all() {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			count++
		}
	}
	return count
}

// last are the youngest lines.
func (l *managerLog) last(n int) []string {
	lines := l.all()
	return lines[max(0, len(lines)-n):]
}
