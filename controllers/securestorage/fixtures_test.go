package securestorage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// fixture is one SecureStorage, the fake cloud and a fake clock for both. It implements the API server
// in memory. The process can crash and restart.
type fixture struct {
	Gomega
	t       *testing.T
	clock   *clocktesting.FakeClock
	server  *fakecloud.Server
	demo    fakecloud.Demo
	storage *v1beta1.SecureStorage
	deleted bool
	// ambient is the flag --ambient-credentials of the next process.
	ambient AmbientScopes
	secrets map[string]*corev1.Secret
	// children are the objects that are exported, and other ones that a test creates; all but the secrets.
	children *ssatest.Server
	cached   *ssatest.Cache
	events   []string
	// statuses are the statuses that were written, with their time.
	statuses []written

	process *process
	// crashAt ends the process at a call to the cloud or to the API server.
	crashAt *crashPoint
	// crashed is true until a process that restarts after a crash begins: see runUntil.
	crashed bool
	// onStep is called before and after each call to the cloud or to the API server.
	onStep func(after bool)
	calls  int
	// onGrant is called after a grant was created, before the controller gets the response.
	onGrant func()
	// transport sends the requests: this fixture, or the first one of a fleet. onRequest is called for each request.
	transport *fixture
	onRequest func(*http.Request)
	// refuse is called for each request before it is sent; an error is what the transport returns.
	refuse func(*http.Request) error
	// unprotected are writes to the account while the Secret that its deletion needs was not protected.
	unprotected []string
	// unrecorded are grants that were requested before status.grants recorded them.
	unrecorded []string
	// Until staleUntil, reads of the account return the stale response.
	staleUntil time.Time
	stale      *httptest.ResponseRecorder
}

type written struct {
	at     time.Time
	status v1beta1.SecureStorageStatus
}

// process is a running manager. Its memory is lost in a crash.
type process struct {
	reconciler reconcile.Reconciler
	access     *cloudAccess
	applier    *ssa.Applier
}

// crashPoint says at which call the process ends: before or after the call takes effect.
type crashPoint struct {
	at    int
	after bool
}

// crash is the value of the panic that ends a process.
type crash struct{}

func (crash) Error() string { return "the process crashed" }

func newFixture(t *testing.T, knobs fakecloud.Knobs, edits ...func(*v1beta1.SecureStorageSpec)) *fixture {
	t.Helper()
	c := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	knobs.MillisecondHints = true
	f := &fixture{t: t, clock: c, server: fakecloud.New(fakecloud.Options{Clock: c, Knobs: knobs, Seed: fixtureSeed}), secrets: map[string]*corev1.Secret{}}
	f.transport = f
	f.children = ssatest.NewServer(testScheme(), ssatest.Options{Clock: c})
	f.cached = f.children.Cache()
	f.Gomega = NewWithT(reporter{t, f})
	f.demo = f.server.SeedDemo()
	f.ambient = AmbientScopes{"billing": {scopeOf("/subscriptions/" + f.demo.Subscription), scopeOf("/subscriptions/" + otherSubscription)}}
	f.secrets["billing/own"] = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{UID: "1", ResourceVersion: "1"},
		Data:       map[string][]byte{"tenantID": []byte("t"), "clientID": []byte("c"), "clientSecret": []byte(fakecloud.Token("billing"))},
	}
	f.storage = &v1beta1.SecureStorage{
		ObjectMeta: metav1.ObjectMeta{Name: "invoices", Namespace: "billing", UID: "5b0c7ad7-2f43-4e0e-9a53-4f1d5f3b2a10", Generation: 1, ResourceVersion: "1"},
		Spec: v1beta1.SecureStorageSpec{
			Provider:            v1beta1.SecureStorageProvider{SubscriptionID: f.demo.Subscription, ResourceGroup: f.demo.Group, Location: f.demo.Location},
			SKU:                 v1beta1.SKUStandardLRS,
			Key:                 v1beta1.SecureStorageKey{Vault: &v1beta1.SecureStorageVault{Name: f.demo.Vault}, Name: f.demo.Key},
			DeletionPolicy:      v1beta1.DeletionDelete,
			PollInterval:        metav1.Duration{Duration: 5 * time.Minute},
			PropagationDeadline: metav1.Duration{Duration: 15 * time.Minute},
		},
	}
	for _, edit := range edits {
		edit(&f.storage.Spec)
	}
	f.restart()
	return f
}

// fixtureSeed is the seed of the cloud.
const fixtureSeed = 1

// otherSubscription is the ID of a subscription beside that of the demo.
const otherSubscription = "00000000-0000-4000-8000-00000000beef"

func scopeOf(id string) cloud.Scope {
	scope, err := cloud.ParseScope(id)
	if err != nil {
		panic(err)
	}
	return scope
}

// restart starts a process with empty memory.
func (f *fixture) restart() {
	f.start(cloud.New(cloud.Config{Cloud: fakecloud.CloudAt("https://fake.test"), Transport: f, Clock: f.clock}))
}

// start starts a process with the given cloud clients.
func (f *fixture) start(shared *cloud.Cloud) {
	protection := &secretProtection{cached: f, uncached: f, finalizers: f}
	access := &cloudAccess{
		cloud: shared, credentials: cloud.TokenCredentials{Token: fakecloud.Token("fixpoint")}, ambient: f.ambient,
		secrets: f, cache: f, protection: protection, recorder: f,
	}
	applier, err := ssa.New(ssa.Options{Client: f.children, FieldManager: FieldManager})
	f.Expect(err).NotTo(HaveOccurred())
	engine, err := phases.New(definition(f.clock, access), phases.Dependencies{
		Reader: f, Uncached: f, Applier: f, Scheme: testScheme(), Recorder: f, Clock: f.clock,
	})
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(engine.Index(f.children)).To(Succeed())
	f.process = &process{reconciler: protection.wrap(engine), access: access, applier: applier}
}

// testScheme is built once: the processes of a test that crashes at every call would spend a third of their
// time on it.
var testScheme = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	_ = clientgoscheme.AddToScheme(scheme)
	_ = v1beta1.AddToScheme(scheme)
	return scheme
})

// name is the name of the account.
func (f *fixture) name() string { return accountName(f.storage) }

// reconcile reconciles once, and returns when to reconcile again.
func (f *fixture) reconcile() (after time.Duration) {
	defer func() {
		if r := recover(); r != nil {
			// singleflight wraps the value of a panic.
			if err, ok := r.(error); !ok || !errors.As(err, &crash{}) {
				panic(r)
			}
			f.restart()
			after = afterCrash
		}
	}()
	result, err := f.process.reconciler.Reconcile(context.Background(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(f.storage)})
	if err != nil {
		return time.Second
	}
	return result.RequeueAfter
}

// runUntil reconciles, each time when it is due, until the check returns true.
func (f *fixture) runUntil(what string, check func() bool) {
	f.t.Helper()
	const limit = 400
	f.wait(check)
	for range limit {
		if check() {
			return
		}
		after := f.reconcile()
		if check() {
			return
		}
		f.Expect(after).To(BeNumerically(">", 0), "no requeue, and not yet %s", what)
		f.clock.Step(after)
	}
	f.Expect(what).To(BeEmpty(), "not reached")
}

// wait lets the time pass after which a crashed process reconciles again, unless nothing is to be done.
func (f *fixture) wait(check func() bool) {
	if f.crashed && !check() {
		f.clock.Step(afterCrash)
	}
	f.crashed = false
}

func (f *fixture) runUntilReady() {
	f.t.Helper()
	f.runUntil("ready", f.isReady)
}

func (f *fixture) isReady() bool {
	return meta.IsStatusConditionTrue(f.storage.Status.Conditions, "Ready") && f.storage.Status.ObservedGeneration == f.storage.Generation
}

// runUntilReason reconciles until Ready has the reason.
func (f *fixture) runUntilReason(reason string) *metav1.Condition {
	f.t.Helper()
	f.runUntil("Ready for "+reason, func() bool { return f.ready() != nil && f.ready().Reason == reason })
	return f.ready()
}

func (f *fixture) ready() *metav1.Condition { return f.condition("Ready") }

func (f *fixture) condition(kind string) *metav1.Condition {
	return meta.FindStatusCondition(f.storage.Status.Conditions, kind)
}

// poll advances the clock past the poll interval and reconciles once.
func (f *fixture) poll() {
	f.clock.Step(2 * f.storage.Spec.PollInterval.Duration)
	f.reconcile()
}

// edit changes the spec as a user does.
func (f *fixture) edit(change func(*v1beta1.SecureStorageSpec)) {
	change(&f.storage.Spec)
	f.storage.Generation++
	f.stored()
}

// stored gives the object the next resourceVersion.
func (f *fixture) stored() {
	version, err := strconv.Atoi(f.storage.ResourceVersion)
	f.Expect(err).NotTo(HaveOccurred())
	f.storage.ResourceVersion = strconv.Itoa(version + 1)
}

// delete deletes the object as a user does. Without a finalizer it is removed at once.
func (f *fixture) delete() {
	now := metav1.NewTime(f.clock.Now())
	f.storage.DeletionTimestamp = &now
	f.storage.Generation++
	f.stored()
	f.deleted = len(f.storage.Finalizers) == 0
}

func (f *fixture) runUntilDeleted() {
	f.t.Helper()
	f.runUntil("gone", func() bool { return f.deleted })
}

// expectNothingLeft checks that deletionPolicy Delete left nothing in the cloud.
func (f *fixture) expectNothingLeft() {
	f.t.Helper()
	f.Expect(f.server.Orphans()).To(BeEmpty(), "grants without an account")
	for _, account := range f.server.State().Accounts {
		f.Expect(account.Tags).NotTo(HaveKeyWithValue(cloud.OwnerTag, string(f.storage.UID)), "account %s was not deleted", account.Name)
	}
	f.Expect(f.unrecorded).To(BeEmpty(), "grants created before status.grants recorded them")
	f.Expect(f.unprotected).To(BeEmpty(), "writes before the Secret was protected")
}

// created counts the creations of the account that did not fail in the cloud.
func (f *fixture) created() int {
	account := "/storageaccounts/" + f.name()
	return f.server.Created(account) - len(f.server.Effects(fakecloud.Failed, account))
}

// Do implements the SDK's transport. The process can crash in it.
func (f *fixture) Do(request *http.Request) (*http.Response, error) {
	if err := request.Context().Err(); err != nil {
		return nil, err
	}
	f.step(false)
	if f.onRequest != nil {
		f.onRequest(request)
	}
	if f.refuse != nil {
		if err := f.refuse(request); err != nil {
			return nil, err
		}
	}
	isGrant := f.checkGrantIsRecorded(request)
	f.checkSecretIsProtected(request)
	recorder := httptest.NewRecorder()
	lost := f.serve(recorder, request)
	if isGrant && recorder.Code < http.StatusBadRequest && f.onGrant != nil {
		f.onGrant()
	}
	recorder = f.serveStale(request, recorder)
	f.step(true)
	f.calls++
	if lost {
		return nil, errors.New("EOF")
	}
	response := recorder.Result()
	response.Request = request
	return response, nil
}

func (f *fixture) serve(recorder http.ResponseWriter, request *http.Request) (lost bool) {
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
	f.server.ServeHTTP(recorder, request)
	return false
}

// step counts down to the crash point.
func (f *fixture) step(after bool) {
	if f.onStep != nil {
		f.onStep(after)
	}
	if f.crashAt == nil || f.crashAt.after != after {
		return
	}
	f.crashAt.at--
	if f.crashAt.at == 0 {
		f.crashAt = nil
		panic(crash{})
	}
}

// Get implements client.Reader.
func (f *fixture) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, key.Name)
	switch into := into.(type) {
	case *v1beta1.SecureStorage:
		if f.deleted {
			return notFound
		}
		f.storage.DeepCopyInto(into)
	case *corev1.Secret:
		secret, ok := f.secrets[key.String()]
		if !ok {
			return f.cached.Get(ctx, key, into)
		}
		secret.DeepCopyInto(into)
	default:
		return f.cached.Get(ctx, key, into)
	}
	return nil
}

// List implements client.Reader.
func (f *fixture) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	switch into := into.(type) {
	case *v1beta1.SecureStorageList:
		// Of a fleet, whose members share a Secret, the first one stands for all.
		for _, member := range slices.Compact([]*fixture{f.transport, f}) {
			if !member.deleted {
				into.Items = append(into.Items, *member.storage.DeepCopy())
			}
		}
	case *metav1.PartialObjectMetadataList:
		for key, secret := range f.secrets {
			metadata := metav1.PartialObjectMetadata{ObjectMeta: *secret.ObjectMeta.DeepCopy()}
			metadata.Namespace, metadata.Name, _ = strings.Cut(key, "/")
			into.Items = append(into.Items, metadata)
		}
	default:
		return f.cached.List(ctx, into, options...)
	}
	return nil
}

// checkSecretIsProtected notes a write to the account that precedes the finalizer of the Secret.
func (f *fixture) checkSecretIsProtected(request *http.Request) {
	needed := neededSecret(f.storage)
	isWrite := request.Method == http.MethodPut && strings.HasSuffix(strings.ToLower(request.URL.Path), "/storageaccounts/"+f.name())
	if needed != "" && isWrite && !f.isProtected(needed) {
		f.unprotected = append(f.unprotected, request.Method+" "+request.URL.Path)
	}
}

func (f *fixture) isProtected(secret string) bool {
	found := f.secrets[f.storage.Namespace+"/"+secret]
	return found != nil && slices.Contains(found.Finalizers, SecretFinalizer)
}

// Decide implements phases.Applier.
func (f *fixture) Decide(request ssa.Request) (ssa.Decision, error) {
	return f.process.applier.Decide(request)
}

// Execute implements phases.Applier.
func (f *fixture) Execute(ctx context.Context, decision ssa.Decision) (ssa.Result, error) {
	f.step(false)
	result, err := f.process.applier.Execute(ctx, decision)
	f.step(true)
	return result, err
}

// ApplyStatus implements phases.Applier. It replaces the whole status, unless the object has a newer
// generation.
func (f *fixture) ApplyStatus(_ context.Context, desired ssa.Configuration, live client.Object) (ssa.Result, error) {
	f.step(false)
	if live.GetGeneration() != f.storage.Generation {
		return ssa.Result{}, &ssa.Error{Reason: ssa.ReasonStale, Message: "the object has changed", Transient: true}
	}
	raw, err := json.Marshal(desired)
	if err != nil {
		return ssa.Result{}, err
	}
	var applied v1beta1.SecureStorage
	if err := json.Unmarshal(raw, &applied); err != nil {
		return ssa.Result{}, err
	}
	if !equality.Semantic.DeepEqual(f.storage.Status, applied.Status) {
		f.storage.Status = applied.Status
		f.stored()
	}
	f.statuses = append(f.statuses, written{f.clock.Now(), *applied.Status.DeepCopy()})
	f.step(true)
	return ssa.Result{}, nil
}

// EnsureFinalizer implements phases.Applier.
func (f *fixture) EnsureFinalizer(_ context.Context, live client.Object, finalizer string) (client.Object, error) {
	f.step(false)
	if finalizer == SecretFinalizer {
		f.finalize(live, []string{finalizer})
		f.step(true)
		return live, nil
	}
	f.storage.Finalizers = []string{finalizer}
	f.stored()
	f.step(true)
	live.SetFinalizers(f.storage.Finalizers)
	live.SetResourceVersion(f.storage.ResourceVersion)
	return live, nil
}

// RemoveFinalizer implements phases.Applier.
func (f *fixture) RemoveFinalizer(_ context.Context, live client.Object, finalizer string) error {
	f.step(false)
	if finalizer == SecretFinalizer {
		f.finalize(live, nil)
	} else {
		f.deleted = true
	}
	f.step(true)
	return nil
}

// finalize sets the finalizers of a Secret, which is a change of it.
func (f *fixture) finalize(secret client.Object, finalizers []string) {
	for key, stored := range f.secrets {
		if stored.UID != secret.GetUID() {
			continue
		}
		stored.Finalizers = finalizers
		stored.ResourceVersion += "1"
		if stored.DeletionTimestamp != nil && len(finalizers) == 0 {
			delete(f.secrets, key)
		}
	}
}

// Delete implements phases.Applier.
func (f *fixture) Delete(ctx context.Context, live client.Object, owner metav1.OwnerReference, propagation metav1.DeletionPropagation) (bool, error) {
	f.step(false)
	gone, err := f.process.applier.Delete(ctx, live, owner, propagation)
	f.step(true)
	return gone, err
}

// Eventf implements events.EventRecorder.
func (f *fixture) Eventf(_, _ runtime.Object, kind, reason, _, note string, args ...any) {
	text := fmt.Sprintf(note, args...)
	f.Expect(len(text)).To(BeNumerically("<=", 1024), "the API server refuses longer notes")
	f.events = append(f.events, kind+" "+reason+": "+text)
}

// eventsWith counts the Events that contain all of the texts.
func (f *fixture) eventsWith(texts ...string) int {
	count := 0
	for _, event := range f.events {
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

// reporter adds the report of the fixture to every failed expectation.
type reporter struct {
	*testing.T
	fixture *fixture
}

// Fatalf implements what gomega needs of a test.
func (r reporter) Fatalf(format string, args ...any) {
	r.Helper()
	r.T.Fatalf(format+"\n%s", append(args, r.fixture.report())...)
}

func (f *fixture) report() string {
	var b strings.Builder
	object, _ := yaml.Marshal(f.storage)
	fmt.Fprintf(&b, "--- at %s\n%s--- Events\n%s\n--- ledger\n", f.clock.Now().Format(time.TimeOnly), object, strings.Join(f.events, "\n"))
	for _, e := range f.server.Ledger() {
		fmt.Fprintf(&b, "%s %s %s %s %d %s %s %s\n", e.Time.Format("15:04:05.000"), e.Who, e.Method, e.Resource, e.Status, e.Code, e.Effect, e.Detail)
	}
	return b.String()
}

// Edits of the spec.

func retain(s *v1beta1.SecureStorageSpec) { s.DeletionPolicy = v1beta1.DeletionRetain }

func recreate(s *v1beta1.SecureStorageSpec) { s.AccountLossPolicy = v1beta1.LossRecreate }

// adopt uses the credential of the user, because that of the manager does not adopt.
func adopt(s *v1beta1.SecureStorageSpec) {
	s.AdoptionPolicy = v1beta1.AdoptionIfUnowned
	s.Provider.CredentialsSecretRef = &v1beta1.SecureStorageCredentialsSecretRef{Name: "own"}
}

func named(name string) func(*v1beta1.SecureStorageSpec) {
	return func(s *v1beta1.SecureStorageSpec) { s.AccountName = name }
}

func pinned(version string) func(*v1beta1.SecureStorageSpec) {
	return func(s *v1beta1.SecureStorageSpec) { s.Key.Version = version }
}

func byPolicy(s *v1beta1.SecureStorageSpec) { s.Access.Type = v1beta1.AccessPolicy }

func inVault(name string) func(*v1beta1.SecureStorageSpec) {
	return func(s *v1beta1.SecureStorageSpec) { s.Key.Vault = &v1beta1.SecureStorageVault{Name: name} }
}

func tagged(tags map[string]string) func(*v1beta1.SecureStorageSpec) {
	return func(s *v1beta1.SecureStorageSpec) { s.Tags = maps.Clone(tags) }
}

var _ policy.Transporter = (*fixture)(nil)

func uidSuffix(n int) types.UID { return types.UID(fmt.Sprint(n)) }

func isEncrypted(status v1beta1.SecureStorageStatus) bool {
	return meta.IsStatusConditionTrue(status.Conditions, v1beta1.ConditionEncryptionReady)
}
