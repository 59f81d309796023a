package mcpserver_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// fixture is what one test has to itself.
type fixture struct {
	*harness.Env
	// server answers in place of those that no node runs.
	server *fakeServer
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return &fixture{suite.NewEnv(t), newFakeServer(t)}
}

// newManagedFixture has a manager, for a test that runs in parallel.
func newManagedFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	w := newFixture(t)
	w.startManager()
	return w
}

// startManager runs a manager for the namespace of the test, until the test ends or stops it.
func (w *fixture) startManager() *harness.Manager {
	w.T.Helper()
	return w.StartManager(shared.Config(harness.ManagerUser), w.options())
}

// options are those of a manager for the namespace of the test.
func (w *fixture) options() controllers.Options {
	return controllers.Options{
		Namespaces: []string{w.Namespace}, Controllers: []string{mcpserver.Name}, ProbeEndpoint: w.server.endpoint(),
	}
}

var (
	conditions = harness.Conditions
	messageOf  = harness.Message
)

// events are the notes of the Events about an MCPServer, with their type and reason.
func (w *fixture) events(name string) []string { return w.Events("MCPServer", name) }

// notice sends the time at which a version of an MCPServer is seen for the first time that passes a
// check. Versions of before count too.
func (w *fixture) notice(name string, check func(*v1beta1.MCPServer) bool, at chan<- time.Time) (stop func()) {
	w.T.Helper()
	watcher, err := api.Watch(w.Ctx, &v1beta1.MCPServerList{}, client.InNamespace(w.Namespace), client.MatchingFields{"metadata.name": name})
	w.Expect(err).NotTo(HaveOccurred())
	done := make(chan struct{})
	go func() {
		defer close(done)
		seen := false
		for event := range watcher.ResultChan() {
			if server, ok := event.Object.(*v1beta1.MCPServer); ok && !seen && check(server) {
				seen = true
				at <- time.Now()
			}
		}
	}()
	return func() {
		watcher.Stop()
		<-done
	}
}
