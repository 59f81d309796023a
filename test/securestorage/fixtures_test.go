package securestorage_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/record"
)

// world is what one test has to itself: a namespace, a cloud, and the managers that it started.
// Whatever fails in it is reported with the objects, the Events, the managers' log and the ledger.
type world struct {
	Gomega
	t         *testing.T
	ctx       context.Context
	namespace string
	clock     *fakecloud.ShiftedClock
	options   fakecloud.Options
	net       *network
	demo      fakecloud.Demo
	managers  []*runningManager
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

func newWorld(t *testing.T, knobs fakecloud.Knobs) *world {
	t.Helper()
	w := &world{t: t, ctx: context.Background(), clock: &fakecloud.ShiftedClock{}, net: &network{}}
	w.Gomega = NewWithT(reporter{T: t, world: w})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	w.Expect(api.Create(w.ctx, namespace)).To(Succeed())
	w.namespace = namespace.Name
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

func (w *world) cloud() *fakecloud.Server { return w.net.server }

// exactlyOneCreate holds for every test that loses no account.
func (w *world) exactlyOneCreate() {
	created := map[string]int{}
	for _, entry := range w.cloud().Effects(fakecloud.Created, "/storageaccounts/") {
		if entry.Who != fakecloud.WhoMeddler {
			created[entry.Resource]++
		}
	}
	for account, times := range created {
		if times != 1 {
			w.t.Errorf("%s was created %d times", account, times)
		}
	}
}

// runningManager is a manager in this process.
type runningManager struct {
	log     *managerLog
	cancel  context.CancelFunc
	stopped chan struct{}
}

func (w *world) startManager(namespaces ...string) *runningManager {
	w.t.Helper()
	return w.startManagerWith(cloud.Limits{}, namespaces...)
}

func (w *world) startManagerWith(limits cloud.Limits, namespaces ...string) *runningManager {
	w.t.Helper()
	const workers = 20
	m := &runningManager{log: &managerLog{}, stopped: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	mgr, err := controllers.NewManager(ctx, shared.Config(managerUser), controllers.Options{
		Namespaces:  append(namespaces, w.namespace),
		Controllers: []string{securestorage.Name},
		Concurrency: workers,
		Cloud:       cloud.Config{Cloud: fakecloud.CloudAt("http://cloud.test"), AllowHTTP: true, Transport: w.net, Limits: limits},
		Credentials: cloud.TokenCredentials{Token: fakecloud.Token("manager")},
		Logger:      m.log.logger(),
	})
	w.Expect(err).NotTo(HaveOccurred())
	go func() {
		defer close(m.stopped)
		_ = mgr.Start(ctx)
	}()
	w.managers = append(w.managers, m)
	w.t.Cleanup(m.stop)
	return m
}

func (m *runningManager) stop() {
	m.cancel()
	<-m.stopped
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
	}, funcr.Options{Verbosity: 10, LogTimestamp: true})
}

func (l *managerLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// edit changes the spec of a SecureStorage.
type edit func(spec *v1alpha1.SecureStorageSpec)

func (w *world) storage(name string, edits ...edit) *v1alpha1.SecureStorage {
	storage := &v1alpha1.SecureStorage{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
		Spec: v1alpha1.SecureStorageSpec{
			Provider:       v1alpha1.SecureStorageProvider{SubscriptionID: w.demo.Subscription, ResourceGroup: w.demo.Group, Location: w.demo.Location},
			Key:            v1alpha1.SecureStorageKey{Vault: &v1alpha1.SecureStorageVault{Name: w.demo.Vault}, KeyName: w.demo.Key},
			DeletionPolicy: v1alpha1.DeletionDelete,
			PollInterval:   metav1.Duration{Duration: 10 * time.Second},
		},
	}
	for _, e := range edits {
		e(&storage.Spec)
	}
	return storage
}

func (w *world) create(name string, edits ...edit) *v1alpha1.SecureStorage {
	w.t.Helper()
	storage := w.storage(name, edits...)
	w.Expect(api.Create(w.ctx, storage)).To(Succeed())
	return storage
}

func (w *world) read(name string) *v1alpha1.SecureStorage {
	w.t.Helper()
	storage := &v1alpha1.SecureStorage{}
	w.Expect(api.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, storage)).To(Succeed())
	return storage
}

// eventually waits until a SecureStorage passes the check, and returns it.
func (w *world) eventually(name string, check func(g Gomega, live *v1alpha1.SecureStorage)) *v1alpha1.SecureStorage {
	w.t.Helper()
	var found *v1alpha1.SecureStorage
	w.Eventually(func(g Gomega) {
		live := &v1alpha1.SecureStorage{}
		g.Expect(api.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, live)).To(Succeed())
		check(g, live)
		found = live
	}).Should(Succeed())
	return found
}

func (w *world) eventuallyReady(name string) *v1alpha1.SecureStorage {
	w.t.Helper()
	return w.eventually(name, func(g Gomega, live *v1alpha1.SecureStorage) {
		g.Expect(isReady(live)).To(BeTrue(), "%+v", live.Status.Conditions)
	})
}

func (w *world) eventuallyReason(name, reason string) *v1alpha1.SecureStorage {
	w.t.Helper()
	return w.eventually(name, func(g Gomega, live *v1alpha1.SecureStorage) {
		g.Expect(readyOf(live).Reason).To(Equal(reason), "%+v", live.Status.Conditions)
	})
}

func readyOf(storage *v1alpha1.SecureStorage) metav1.Condition {
	if c := meta.FindStatusCondition(storage.Status.Conditions, "Ready"); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func isReady(storage *v1alpha1.SecureStorage) bool {
	return readyOf(storage).Status == metav1.ConditionTrue && storage.Status.ObservedGeneration == storage.Generation
}

// poke makes the manager look at once, and not when the poll interval has passed.
func (w *world) poke(name string) {
	w.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"test.fixpoint.dev/poke":"%d"}}}`, time.Now().UnixNano())
	w.Expect(api.Patch(w.ctx, w.storage(name), client.RawPatch("application/merge-patch+json", patch))).To(Succeed())
}

func (w *world) delete(name string) {
	w.t.Helper()
	w.Expect(api.Delete(w.ctx, w.storage(name))).To(Succeed())
}

func (w *world) eventuallyGone(name string) {
	w.t.Helper()
	w.Eventually(func() bool {
		err := api.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, &v1alpha1.SecureStorage{})
		return apierrors.IsNotFound(err)
	}).Should(BeTrue())
}

// leavesNothing is what deletionPolicy Delete promises.
func (w *world) leavesNothing() {
	w.t.Helper()
	w.Expect(w.cloud().Orphans()).To(BeEmpty())
	state := w.cloud().State()
	w.Expect(state.Accounts).To(BeEmpty())
	w.Expect(state.Assignments).To(BeEmpty())
}

// history collects every version of a SecureStorage from now on, with the time at which it was seen.
func (w *world) history(name string) func() []*v1alpha1.SecureStorage {
	w.t.Helper()
	stop, err := record.Versions[*v1alpha1.SecureStorage](w.ctx, api, &v1alpha1.SecureStorageList{}, client.InNamespace(w.namespace), client.MatchingFields{"metadata.name": name})
	w.Expect(err).NotTo(HaveOccurred())
	w.t.Cleanup(func() { stop() })
	return stop
}

// events are the notes of the Events about a SecureStorage, with their type and reason.
func (w *world) events(name string) []string {
	var list eventsv1.EventList
	w.Expect(api.List(w.ctx, &list, client.InNamespace(w.namespace))).To(Succeed())
	slices.SortFunc(list.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	var notes []string
	for _, e := range list.Items {
		if e.Regarding.Name == name {
			notes = append(notes, e.Type+" "+e.Reason+" "+e.Note)
		}
	}
	return notes
}

func (w *world) eventuallyTold(name string, texts ...string) {
	w.t.Helper()
	w.Eventually(func() bool {
		return slices.ContainsFunc(w.events(name), func(note string) bool {
			return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(note, text) })
		})
	}).Should(BeTrue(), "no Event with %q", texts)
}

// reporter adds the report on its world to every expectation that fails.
type reporter struct {
	*testing.T
	world *world
}

// Fatalf implements what gomega needs of a test.
func (r reporter) Fatalf(format string, args ...any) {
	r.Helper()
	r.T.Fatalf(format+"\n%s", append(args, r.world.report())...)
}

// report shows what there is to see of the world.
func (w *world) report() string {
	var b strings.Builder
	const atMost, lines = 3, 60
	var list v1alpha1.SecureStorageList
	if err := api.List(w.ctx, &list, client.InNamespace(w.namespace)); err == nil {
		waiting := slices.DeleteFunc(list.Items, func(s v1alpha1.SecureStorage) bool { return len(list.Items) > atMost && isReady(&s) })
		fmt.Fprintf(&b, "--- %d SecureStorages, of which these\n", len(list.Items))
		for i := range waiting[:min(atMost, len(waiting))] {
			text, _ := yaml.Marshal(waiting[i])
			fmt.Fprintf(&b, "%s--- its Events\n%s\n", text, strings.Join(w.events(waiting[i].Name), "\n"))
		}
	}
	for i, m := range w.managers {
		log := m.log.all()
		fmt.Fprintf(&b, "--- log of manager %d\n%s\n", i+1, strings.Join(log[max(0, len(log)-lines):], "\n"))
	}
	fmt.Fprintf(&b, "--- ledger\n")
	ledger := w.cloud().Ledger()
	for _, e := range ledger[max(0, len(ledger)-lines):] {
		fmt.Fprintf(&b, "%s %s %s %s %d %s %s %s\n", e.Time.Format("15:04:05.000"), e.Who, e.Method, e.Resource, e.Status, e.Code, e.Effect, e.Detail)
	}
	return b.String()
}
