package appservice_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// fixture is what one test has to itself.
type fixture struct{ *harness.Env }

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return &fixture{suite.NewEnv(t)}
}

// newManagedFixture has a manager, for a test that runs in parallel.
func newManagedFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	w := newFixture(t)
	w.startManager()
	return w
}

// sub is the fixture of a parallel subtest, which has AppServices of its own.
func (w *fixture) sub(t *testing.T, focus ...string) *fixture {
	t.Helper()
	t.Parallel()
	return &fixture{w.Sub(t, focus...)}
}

// startManager runs a manager for the namespace of the test, until the test ends or stops it.
func (w *fixture) startManager() *harness.Manager {
	w.T.Helper()
	return w.StartManager(shared.Config(harness.ManagerUser), w.options())
}

// options are those of a manager for the namespace of the test.
func (w *fixture) options() controllers.Options {
	return controllers.Options{Namespaces: []string{w.Namespace}, Controllers: []string{appservice.Name}}
}

// childKinds are the kinds of all children, with an empty object of each.
var childKinds = harness.ChildKinds(appservice.Name)

var (
	conditions = harness.Conditions
	messageOf  = harness.Message
	kstatus    = harness.KStatus
)

// events are the notes of the Events about an AppService, with their type and reason.
func (w *fixture) events(name string) []string { return w.Events("AppService", name) }

// consistentlyFor watches something for a while that must stay as it is.
func (w *fixture) consistentlyFor(window time.Duration, check func(g Gomega)) {
	w.T.Helper()
	w.Consistently(check).WithTimeout(window).WithPolling(window / 20).Should(Succeed())
}

// isNotHot watches the manager for ten seconds, in which it may send at most that many requests: it must
// not retry in a hot loop what it cannot fix.
func (w *fixture) isNotHot(atMost int) {
	w.T.Helper()
	const window = 10 * time.Second
	mark := w.Mark()
	w.consistentlyFor(window, func(g Gomega) {
		requests := w.Requests(mark)
		g.Expect(len(requests)).To(BeNumerically("<=", atMost), "requests since something went wrong:\n%s", requests)
	})
}
