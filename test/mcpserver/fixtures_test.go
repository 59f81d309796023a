package mcpserver_test

import (
	"testing"

	. "github.com/onsi/gomega"

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

// checkedAfter returns when the manager that was started last has found the Deployment of an MCPServer to be as desired,
// after something that triggers a reconcile. That may be over before the act returns, so it counts from before.
func (w *fixture) checkedAfter(name string, act func()) {
	w.T.Helper()
	m := w.Managers[len(w.Managers)-1]
	checks := func() int { return m.Checks("MCPServer", name, "Deployment") }
	before := checks()
	act()
	w.Eventually(checks).Should(BeNumerically(">", before), "checks of %s", name)
}
