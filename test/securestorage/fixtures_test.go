package securestorage_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// fixture is what one test has to itself: a namespace, a cloud, and the managers that it started.
type fixture struct {
	*harness.Env
	clock   *fakecloud.ShiftedClock
	options fakecloud.Options
	net     *network
	demo    fakecloud.Demo
	// ambient is the flag --ambient-credentials of the managers.
	ambient securestorage.AmbientScopes
}

// network is the way from the managers to the cloud, which can be cut, and lead to another server.
type network struct {
	mu     sync.Mutex
	server *fakecloud.Server
	at     *fakecloud.Endpoint
}

// Do implements the SDK's transport.
func (n *network) Do(request *http.Request) (*http.Response, error) {
	n.mu.Lock()
	at := n.at
	n.mu.Unlock()
	if at == nil {
		return nil, errors.New("no route to the cloud")
	}
	target, err := url.Parse(at.URL)
	if err != nil {
		return nil, err
	}
	request.URL.Scheme, request.URL.Host, request.Host = target.Scheme, target.Host, target.Host
	return at.Client().Do(request)
}

func (n *network) connect(server *fakecloud.Server) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.server, n.at = server, server.StartHTTP()
}

func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at.Close()
	n.at = nil
}

// brisk is a cloud with all the delays of the real one, short enough for a test.
func brisk() fakecloud.Knobs {
	knobs := fakecloud.Realistic().Compress(100)
	knobs.GrantDelay = fakecloud.Between(500*time.Millisecond, 2*time.Second)
	knobs.KeyLookup = fakecloud.Period(24 * time.Hour)
	return knobs
}

func newFixture(t *testing.T, knobs fakecloud.Knobs) *fixture {
	t.Helper()
	w := &fixture{Env: suite.NewEnv(t), clock: &fakecloud.ShiftedClock{}, net: &network{}, ambient: harness.AmbientScopes()}
	w.Details = append(w.Details, w.ledger)
	w.options = fakecloud.Options{Clock: w.clock, Knobs: knobs, Seed: 1}
	w.net.connect(fakecloud.New(w.options))
	w.demo = w.cloud().SeedDemo()
	t.Cleanup(func() {
		w.exactlyOneCreate()
		if w.net.at != nil {
			w.net.cut()
		}
	})
	return w
}

func (w *fixture) cloud() *fakecloud.Server { return w.net.server }

// exactlyOneCreate holds for every test that loses no account.
func (w *fixture) exactlyOneCreate() {
	created := map[string]int{}
	for _, entry := range w.cloud().Effects(fakecloud.Created, "/storageaccounts/") {
		if entry.Who != fakecloud.WhoMeddler {
			created[entry.Resource]++
		}
	}
	for account, times := range created {
		if times != 1 {
			w.T.Errorf("%s was created %d times", account, times)
		}
	}
}

func (w *fixture) startManager(namespaces ...string) *harness.Manager {
	w.T.Helper()
	return w.startManagerWith(cloud.Limits{}, namespaces...)
}

// workers is how many SecureStorages a manager reconciles at a time.
const workers = 20

func (w *fixture) startManagerWith(limits cloud.Limits, namespaces ...string) *harness.Manager {
	w.T.Helper()
	return w.StartManager(shared.Config(harness.ManagerUser), controllers.Options{
		Namespaces:  append(namespaces, w.Namespace),
		Controllers: []string{securestorage.Name},
		Concurrency: workers,
		Cloud:       cloud.Config{Cloud: fakecloud.CloudAt("http://cloud.test"), AllowHTTP: true, Transport: w.net, Limits: limits},
		Credentials: cloud.TokenCredentials{Token: fakecloud.Token("manager")}, AmbientScopes: w.ambient,
	})
}

// edit changes the spec of a SecureStorage.
type edit func(spec *v1beta1.SecureStorageSpec)

func (w *fixture) storage(name string, edits ...edit) *v1beta1.SecureStorage {
	storage := &v1beta1.SecureStorage{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.Namespace},
		Spec: v1beta1.SecureStorageSpec{
			Provider:       v1beta1.SecureStorageProvider{SubscriptionID: w.demo.Subscription, ResourceGroup: w.demo.Group, Location: w.demo.Location},
			Key:            v1beta1.SecureStorageKey{Vault: &v1beta1.SecureStorageVault{Name: w.demo.Vault}, Name: w.demo.Key},
			DeletionPolicy: v1beta1.DeletionDelete,
			PollInterval:   metav1.Duration{Duration: 10 * time.Second},
		},
	}
	for _, e := range edits {
		e(&storage.Spec)
	}
	return storage
}

func (w *fixture) create(name string, edits ...edit) *v1beta1.SecureStorage {
	w.T.Helper()
	storage := w.storage(name, edits...)
	w.Expect(api.Create(w.Ctx, storage)).To(Succeed())
	return storage
}

func (w *fixture) read(name string) *v1beta1.SecureStorage {
	w.T.Helper()
	return harness.Read(w, name, &v1beta1.SecureStorage{})
}

// eventually waits until a SecureStorage passes the check, and returns it.
func (w *fixture) eventually(name string, check func(g Gomega, live *v1beta1.SecureStorage)) *v1beta1.SecureStorage {
	w.T.Helper()
	return harness.Eventually(w, name, &v1beta1.SecureStorage{}, check)
}

func (w *fixture) eventuallyReady(name string) *v1beta1.SecureStorage {
	w.T.Helper()
	return w.eventually(name, func(g Gomega, live *v1beta1.SecureStorage) {
		g.Expect(isReady(live)).To(BeTrue(), "%+v", live.Status.Conditions)
	})
}

func (w *fixture) eventuallyReason(name, reason string) *v1beta1.SecureStorage {
	w.T.Helper()
	return w.eventually(name, func(g Gomega, live *v1beta1.SecureStorage) {
		g.Expect(readyOf(live).Reason).To(Equal(reason), "%+v", live.Status.Conditions)
	})
}

func readyOf(storage *v1beta1.SecureStorage) metav1.Condition {
	if c := meta.FindStatusCondition(storage.Status.Conditions, "Ready"); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func isReady(storage *v1beta1.SecureStorage) bool {
	return readyOf(storage).Status == metav1.ConditionTrue && storage.Status.ObservedGeneration == storage.Generation
}

// poke triggers a reconcile at once, before the poll interval has passed.
func (w *fixture) poke(name string) {
	w.T.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"test.fixpoint.dev/poke":"%d"}}}`, time.Now().UnixNano())
	w.Expect(api.Patch(w.Ctx, w.storage(name), client.RawPatch("application/merge-patch+json", patch))).To(Succeed())
}

func (w *fixture) delete(name string) {
	w.T.Helper()
	w.Expect(api.Delete(w.Ctx, w.storage(name))).To(Succeed())
}

func (w *fixture) eventuallyGone(name string) {
	w.T.Helper()
	w.Eventually(w.IsGone(name, &v1beta1.SecureStorage{})).Should(Succeed())
}

// leavesNothing is what deletionPolicy Delete promises.
func (w *fixture) leavesNothing() {
	w.T.Helper()
	w.Expect(w.cloud().Orphans()).To(BeEmpty())
	state := w.cloud().State()
	w.Expect(state.Accounts).To(BeEmpty())
	w.Expect(state.Assignments).To(BeEmpty())
}

// history collects every version of a SecureStorage from now on.
func (w *fixture) history(name string) func() []*v1beta1.SecureStorage {
	w.T.Helper()
	return harness.Versions[*v1beta1.SecureStorage](w, &v1beta1.SecureStorageList{}, name)
}

// events are the notes of the Events about a SecureStorage, with their type and reason.
func (w *fixture) events(name string) []string { return w.Events("SecureStorage", name) }

func (w *fixture) eventuallyTold(name string, texts ...string) {
	w.T.Helper()
	w.Eventually(func() bool {
		return slices.ContainsFunc(w.events(name), func(note string) bool {
			return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(note, text) })
		})
	}).Should(BeTrue(), "no Event with %q", texts)
}

// ledger is the end of the cloud's, for the report.
func (w *fixture) ledger() string {
	const lines = 60
	var b strings.Builder
	b.WriteString("--- ledger\n")
	ledger := w.cloud().Ledger()
	for _, e := range ledger[max(0, len(ledger)-lines):] {
		fmt.Fprintf(&b, "%s %s %s %s %d %s %s %s\n", e.Time.Format("15:04:05.000"), e.Who, e.Method, e.Resource, e.Status, e.Code, e.Effect, e.Detail)
	}
	return b.String()
}
