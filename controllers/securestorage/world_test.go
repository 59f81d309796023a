package securestorage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// world is one SecureStorage, the fake cloud, and a clock that both go by. There is no API server: the
// object is kept here, as an API server would. A process is what does not outlive a crash.
type world struct {
	Gomega
	t       *testing.T
	clock   *clocktesting.FakeClock
	server  *fakecloud.Server
	demo    fakecloud.Demo
	storage *v1alpha1.SecureStorage
	gone    bool
	secrets map[string]*corev1.Secret
	events  []string
	// statuses are those that were written, with the time.
	statuses []written

	process *process
	// cut ends the process at a call, to the cloud or to the API server.
	cut   *cut
	calls int
	// onGrant is called when a grant was made, before anybody knows.
	onGrant func()
	// unnoted are grants that were asked for and that the status had not noted.
	unnoted []string
	// Until then, a look at the account shows what the one before has shown.
	pastUntil time.Time
	past      *httptest.ResponseRecorder
}

type written struct {
	at     time.Time
	status v1alpha1.SecureStorageStatus
}

// process is a manager: what it knows beside the world is lost with it.
type process struct {
	reconciler *frugal
}

// cut says at which call, and on which side of its effect, the process ends.
type cut struct {
	at    int
	after bool
}

// crash is what a process ends with.
type crash struct{}

func newWorld(t *testing.T, knobs fakecloud.Knobs, edits ...func(*v1alpha1.SecureStorageSpec)) *world {
	t.Helper()
	c := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	knobs.MillisecondHints = true
	w := &world{t: t, clock: c, server: fakecloud.New(fakecloud.Options{Clock: c, Knobs: knobs, Seed: 1}), secrets: map[string]*corev1.Secret{}}
	w.Gomega = NewWithT(reporter{t, w})
	w.demo = w.server.SeedDemo()
	w.storage = &v1alpha1.SecureStorage{
		ObjectMeta: metav1.ObjectMeta{Name: "invoices", Namespace: "billing", UID: "5b0c7ad7-2f43-4e0e-9a53-4f1d5f3b2a10", Generation: 1, ResourceVersion: "1"},
		Spec: v1alpha1.SecureStorageSpec{
			Provider:            v1alpha1.SecureStorageProvider{SubscriptionID: w.demo.Subscription, ResourceGroup: w.demo.Group, Location: w.demo.Location},
			SKU:                 v1alpha1.SKUStandardLRS,
			Key:                 v1alpha1.SecureStorageKey{Vault: &v1alpha1.SecureStorageVault{Name: w.demo.Vault}, KeyName: w.demo.Key},
			DeletionPolicy:      v1alpha1.DeletionDelete,
			PollInterval:        metav1.Duration{Duration: 5 * time.Minute},
			PropagationDeadline: metav1.Duration{Duration: 15 * time.Minute},
		},
	}
	for _, edit := range edits {
		edit(&w.storage.Spec)
	}
	w.restart()
	return w
}

// restart begins a process that knows nothing.
func (w *world) restart() {
	w.begin(cloud.New(cloud.Config{Cloud: fakecloud.CloudAt("https://fake.test"), Transport: w, Clock: w.clock}))
}

// begin begins a process that shares its way to the cloud.
func (w *world) begin(shared *cloud.Cloud) {
	o := Options{
		Cloud:       shared,
		Credentials: cloud.TokenCredentials{Token: fakecloud.Token("fixpoint")},
		Clock:       w.clock,
	}
	entrance := &door{cloud: o.Cloud, credentials: o.Credentials, secrets: w, recorder: w}
	engine, err := phases.New(definition(o, entrance), phases.Dependencies{
		Reader: w, Uncached: w, Applier: w, Scheme: testScheme(), Recorder: w, Clock: w.clock,
	})
	w.Expect(err).NotTo(HaveOccurred())
	w.process = &process{reconciler: &frugal{Engine: engine, reader: w, door: entrance, clock: w.clock}}
}

func testScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	_ = clientgoscheme.AddToScheme(scheme)
	_ = v1alpha1.AddToScheme(scheme)
	return scheme
}

// name of the account.
func (w *world) name() string { return accountName(w.storage) }

// pass makes one pass, and says when the next is due.
func (w *world) pass() (after time.Duration) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				panic(r)
			}
			w.restart()
			after = time.Second
		}
	}()
	result, err := w.process.reconciler.Reconcile(context.Background(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(w.storage)})
	if err != nil {
		return time.Second
	}
	return result.RequeueAfter
}

// runUntil makes passes, each when it is due, until the check holds.
func (w *world) runUntil(what string, check func() bool) {
	w.t.Helper()
	const enough = 400
	for range enough {
		if check() {
			return
		}
		after := w.pass()
		if check() {
			return
		}
		w.Expect(after).To(BeNumerically(">", 0), "nobody comes back, and it is not %s", what)
		w.clock.Step(after)
	}
	w.Expect(what).To(BeEmpty(), "never came about")
}

func (w *world) runUntilReady() {
	w.t.Helper()
	w.runUntil("ready", w.isReady)
}

func (w *world) isReady() bool {
	return meta.IsStatusConditionTrue(w.storage.Status.Conditions, "Ready") && w.storage.Status.ObservedGeneration == w.storage.Generation
}

// runUntilReason is until Ready has the reason.
func (w *world) runUntilReason(reason string) *metav1.Condition {
	w.t.Helper()
	w.runUntil("Ready for "+reason, func() bool { return w.ready() != nil && w.ready().Reason == reason })
	return w.ready()
}

func (w *world) ready() *metav1.Condition { return w.condition("Ready") }

func (w *world) condition(kind string) *metav1.Condition {
	return meta.FindStatusCondition(w.storage.Status.Conditions, kind)
}

// poll lets a poll interval pass, and makes the pass that is due.
func (w *world) poll() {
	w.clock.Step(2 * w.storage.Spec.PollInterval.Duration)
	w.pass()
}

// edit changes the spec, as a user does.
func (w *world) edit(change func(*v1alpha1.SecureStorageSpec)) {
	change(&w.storage.Spec)
	w.storage.Generation++
}

// delete asks for the deletion; an object without a finalizer is gone at once.
func (w *world) delete() {
	now := metav1.NewTime(w.clock.Now())
	w.storage.DeletionTimestamp = &now
	w.storage.Generation++
	w.gone = len(w.storage.Finalizers) == 0
}

func (w *world) runUntilGone() {
	w.t.Helper()
	w.runUntil("gone", func() bool { return w.gone })
}

// leavesNothing is what deletionPolicy Delete promises.
func (w *world) leavesNothing() {
	w.t.Helper()
	w.Expect(w.server.Orphans()).To(BeEmpty(), "grants of nobody")
	for _, account := range w.server.State().Accounts {
		w.Expect(account.Tags).NotTo(HaveKeyWithValue(cloud.OwnerTag, string(w.storage.UID)), "account %s is left", account.Name)
	}
	w.Expect(w.unnoted).To(BeEmpty(), "grants that the status had not noted before")
}

// created is how often the account was created, of which failures of the cloud do not count.
func (w *world) created() int {
	account := "/storageaccounts/" + w.name()
	return w.server.Created(account) - len(w.server.Effects(fakecloud.Failed, account))
}

// Do implements the SDK's transport: the way to the cloud, which may be the process's last.
func (w *world) Do(request *http.Request) (*http.Response, error) {
	if err := request.Context().Err(); err != nil {
		return nil, err
	}
	w.step(false)
	isGrant := w.watchGrant(request)
	recorder := httptest.NewRecorder()
	lost := w.serve(recorder, request)
	if isGrant && recorder.Code < http.StatusBadRequest && w.onGrant != nil {
		w.onGrant()
	}
	recorder = w.lag(request, recorder)
	w.step(true)
	w.calls++
	if lost {
		return nil, errors.New("EOF")
	}
	response := recorder.Result()
	response.Request = request
	return response, nil
}

func (w *world) serve(recorder http.ResponseWriter, request *http.Request) (lost bool) {
	defer func() {
		if r := recover(); r != nil {
			if err, ok := r.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				panic(r)
			}
			lost = true
		}
	}()
	if request.Body == nil {
		request.Body = http.NoBody
	}
	w.server.ServeHTTP(recorder, request)
	return false
}

// step counts down to the crash.
func (w *world) step(after bool) {
	if w.cut == nil || w.cut.after != after {
		return
	}
	w.cut.at--
	if w.cut.at == 0 {
		w.cut = nil
		panic(crash{})
	}
}

// Get implements client.Reader.
func (w *world) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, key.Name)
	switch into := into.(type) {
	case *v1alpha1.SecureStorage:
		if w.gone {
			return notFound
		}
		w.storage.DeepCopyInto(into)
	case *corev1.Secret:
		secret, ok := w.secrets[key.String()]
		if !ok {
			return notFound
		}
		secret.DeepCopyInto(into)
	}
	return nil
}

// List implements client.Reader.
func (w *world) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// Apply implements phases.Applier.
func (w *world) Execute(context.Context, ssa.Decision) (ssa.Result, error) {
	return ssa.Result{}, errors.New("a SecureStorage has no children")
}

// Drifts implements phases.Applier.
func (w *world) Decide(req ssa.Request) (ssa.Decision, error) {
	return ssa.Decision{Request: req, Action: ssa.ActionNone}, nil
}

// ApplyStatus implements phases.Applier: what is applied is the whole status, onto the object that it is
// about.
func (w *world) ApplyStatus(_ context.Context, desired ssa.Configuration, live client.Object) (ssa.Result, error) {
	w.step(false)
	if live.GetGeneration() != w.storage.Generation {
		return ssa.Result{}, &ssa.Error{Reason: ssa.ReasonStale, Message: "it has changed", Transient: true}
	}
	raw, err := json.Marshal(desired)
	if err != nil {
		return ssa.Result{}, err
	}
	var applied v1alpha1.SecureStorage
	if err := json.Unmarshal(raw, &applied); err != nil {
		return ssa.Result{}, err
	}
	w.storage.Status = applied.Status
	w.statuses = append(w.statuses, written{w.clock.Now(), *applied.Status.DeepCopy()})
	w.step(true)
	return ssa.Result{}, nil
}

// EnsureFinalizer implements phases.Applier.
func (w *world) EnsureFinalizer(_ context.Context, live client.Object, finalizer string) (client.Object, error) {
	w.step(false)
	w.storage.Finalizers = []string{finalizer}
	w.step(true)
	live.SetFinalizers(w.storage.Finalizers)
	return live, nil
}

// RemoveFinalizer implements phases.Applier.
func (w *world) RemoveFinalizer(context.Context, client.Object, string) error {
	w.step(false)
	w.gone = true
	w.step(true)
	return nil
}

// Delete implements phases.Applier.
func (w *world) Delete(context.Context, client.Object, metav1.OwnerReference, metav1.DeletionPropagation) error {
	return errors.New("a SecureStorage has no children")
}

// Eventf implements events.EventRecorder.
func (w *world) Eventf(_, _ runtime.Object, kind, reason, _, note string, args ...any) {
	w.events = append(w.events, kind+" "+reason+": "+fmt.Sprintf(note, args...))
}

// told is how many Events hold all of the texts.
func (w *world) told(texts ...string) int {
	count := 0
	for _, event := range w.events {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(event, text)
		}
		if all {
			count++
		}
	}
	return count
}

// reporter adds what there is to see to every expectation that fails.
type reporter struct {
	*testing.T
	world *world
}

// Fatalf implements what gomega needs of a test.
func (r reporter) Fatalf(format string, args ...any) {
	r.Helper()
	r.T.Fatalf(format+"\n%s", append(args, r.world.report())...)
}

func (w *world) report() string {
	var b strings.Builder
	object, _ := yaml.Marshal(w.storage)
	fmt.Fprintf(&b, "--- at %s\n%s--- Events\n%s\n--- ledger\n", w.clock.Now().Format(time.TimeOnly), object, strings.Join(w.events, "\n"))
	for _, e := range w.server.Ledger() {
		fmt.Fprintf(&b, "%s %s %s %s %d %s %s %s\n", e.Time.Format("15:04:05.000"), e.Who, e.Method, e.Resource, e.Status, e.Code, e.Effect, e.Detail)
	}
	return b.String()
}

// Edits of the spec.

func retain(s *v1alpha1.SecureStorageSpec) { s.DeletionPolicy = v1alpha1.DeletionRetain }

func recreate(s *v1alpha1.SecureStorageSpec) { s.OnAccountLoss = v1alpha1.LossRecreate }

func adopt(s *v1alpha1.SecureStorageSpec) { s.AdoptionPolicy = v1alpha1.AdoptionIfUnowned }

func named(name string) func(*v1alpha1.SecureStorageSpec) {
	return func(s *v1alpha1.SecureStorageSpec) { s.AccountName = name }
}

func pinned(version string) func(*v1alpha1.SecureStorageSpec) {
	return func(s *v1alpha1.SecureStorageSpec) { s.Key.Version = version }
}

func byPolicy(s *v1alpha1.SecureStorageSpec) { s.Access.Type = v1alpha1.AccessPolicy }

func inVault(name string) func(*v1alpha1.SecureStorageSpec) {
	return func(s *v1alpha1.SecureStorageSpec) { s.Key.Vault = &v1alpha1.SecureStorageVault{Name: name} }
}

func tagged(tags map[string]string) func(*v1alpha1.SecureStorageSpec) {
	return func(s *v1alpha1.SecureStorageSpec) { s.Tags = maps.Clone(tags) }
}

var _ policy.Transporter = (*world)(nil)

func uidSuffix(n int) types.UID { return types.UID(fmt.Sprint(n)) }

func isEncrypted(status v1alpha1.SecureStorageStatus) bool {
	return meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionEncryptionReady)
}
