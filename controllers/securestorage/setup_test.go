package securestorage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/internal/managertest"
	"github.com/fixpoint-dev/fixpoint/internal/setup"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// GetClient implements [ctrl.Manager]: the client also requests tokens of ServiceAccounts.
func (m *managed) GetClient() client.Client { return withTokens{m.Manager.GetClient()} }

type withTokens struct{ client.Client }

// SubResource implements [client.Client].
func (c withTokens) SubResource(name string) client.SubResourceClient {
	if name == "token" {
		return tokensOf{}
	}
	return c.Client.SubResource(name)
}

// GetEventRecorder implements [ctrl.Manager].
func (m *managed) GetEventRecorder(name string) recorder.EventRecorder {
	m.recorder = name
	return m.events
}

// GetHTTPClient implements [ctrl.Manager]: the client without a cache uses it.
func (m *managed) GetHTTPClient() *http.Client { return &http.Client{Transport: m} }

// RoundTrip implements [http.RoundTripper], for Secrets. A patch adds the finalizer.
func (m *managed) RoundTrip(request *http.Request) (*http.Response, error) {
	m.direct = append(m.direct, request.Method+" "+path.Base(request.URL.Path)+" "+request.URL.Query().Get("fieldManager"))
	secret := &corev1.Secret{}
	if err := m.Server.Get(request.Context(), client.ObjectKey{Namespace: "billing", Name: path.Base(request.URL.Path)}, secret); err != nil {
		return nil, err
	}
	if request.Method == http.MethodPatch {
		_, m.protectedLate = m.cloud.Account(accountName(m.storage))
		secret.Finalizers = []string{SecretFinalizer}
		if err := m.Server.Update(request.Context(), secret); err != nil {
			return nil, err
		}
	}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	body, err := json.Marshal(secret)
	response := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: request}
	return response, err
}

// managed is the controller as a manager runs it, in a bubble, with one SecureStorage.
type managed struct {
	*managertest.Manager
	*WithT
	storage *v1beta1.SecureStorage
	ambient AmbientScopes
	cloud   *fakecloud.Server
	events  *events.FakeRecorder
	// recorder is the name of the recorder of events, and direct are the requests without a cache.
	recorder string
	direct   []string
	// protectedLate says that the finalizer of a Secret was written after the account was created.
	protectedLate bool
	// reads of the SecureStorage from the cache.
	reads int
	// deniesSecrets refuses to write Secrets.
	deniesSecrets atomic.Bool
}

// withManager runs a test with a SecureStorage that was reconciled once.
func withManager(t *testing.T, test func(*managed), edits ...func(*v1beta1.SecureStorageSpec)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, fastCloud(), edits...)
		m := &managed{WithT: NewWithT(t), storage: f.storage, ambient: f.ambient, events: events.NewFakeRecorder(100)}
		m.cloud = fakecloud.New(fakecloud.Options{Clock: clock.RealClock{}, Knobs: fastCloud(), Seed: fixtureSeed})
		m.cloud.SeedDemo()
		m.Manager = managertest.New(t, testScheme(), ssatest.Options{
			TypeConverters: []func(*runtime.Scheme) managedfields.TypeConverter{applyconfiguration.NewTypeConverter},
			Intercept: func(call ssatest.Call) error {
				if call.Verb == "get" && call.Kind.Kind == "SecureStorage" && call.Cached && !call.Done {
					m.reads++
				}
				if call.Verb == "apply" && call.Kind.Kind == "Secret" && !call.Done && m.deniesSecrets.Load() {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, call.Key.Name,
						errors.New(`User "fixpoint" cannot patch resource "secrets" in API group "" in the namespace "billing"`))
				}
				return nil
			},
		})
		m.Expect(Setup(m, m.managerOptions())).To(Succeed())
		stop := m.Run()
		defer stop()
		synctest.Wait()
		m.storage.UID, m.storage.ResourceVersion = "", ""
		m.Expect(m.Server.Create(t.Context(), m.storage)).To(Succeed())
		m.Send(m.storage)
		synctest.Wait()
		test(m)
	})
}

func (m *managed) managerOptions() Options {
	return Options{
		Options:     setup.Options{ManagerAccount: types.NamespacedName{Namespace: "billing", Name: "manager"}},
		Cloud:       cloud.New(cloud.Config{Cloud: fakecloud.CloudAt("https://fake.test"), Transport: m.cloud, Clock: clock.RealClock{}}),
		Credentials: cloud.TokenCredentials{Token: fakecloud.Token("fixpoint")}, AmbientScopes: m.ambient,
	}
}

// now reads the SecureStorage.
func (m *managed) now() *v1beta1.SecureStorage {
	storage := &v1beta1.SecureStorage{}
	m.Expect(m.Server.Get(context.Background(), client.ObjectKeyFromObject(m.storage), storage)).To(Succeed())
	return storage
}

func (m *managed) ready() *metav1.Condition {
	return meta.FindStatusCondition(m.now().Status.Conditions, v1beta1.ConditionReady)
}

// wait lets reconciles become due.
func wait(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // synctest advances the clock
}

// aReconcile is how often one reconcile reads the SecureStorage from the cache: for the protection of Secrets, and then to
// reconcile it.
const aReconcile = 2

// after is the number of reads that an event causes at once.
func (m *managed) after(event func()) int {
	before := m.reads
	event()
	synctest.Wait()
	return m.reads - before
}

func TestManagerBuildsAndDeletesAnAccount(t *testing.T) {
	withManager(t, func(m *managed) {
		wait(5 * time.Minute)
		m.Expect(m.ready()).To(HaveField("Status", metav1.ConditionTrue), "%v", m.now().Status.Conditions)
		_, err := m.cloud.AccountKeys(accountName(m.storage))
		m.Expect(err).NotTo(HaveOccurred())
		exported := &corev1.ConfigMap{}
		m.Expect(m.Server.Get(t.Context(), client.ObjectKeyFromObject(m.storage), exported)).To(Succeed())
		m.Expect(exported.ManagedFields).To(HaveExactElements(HaveField("Manager", FieldManager)))
		m.Expect(m.after(func() { m.SendDelete(exported) })).To(Equal(aReconcile))

		storage := m.now()
		m.Expect(m.Server.Delete(t.Context(), storage)).To(Succeed())
		m.Send(m.now())
		wait(5 * time.Minute)
		m.Expect(apierrors.IsNotFound(m.Server.Get(t.Context(), client.ObjectKeyFromObject(storage), storage))).To(BeTrue())
		_, err = m.cloud.AccountKeys(accountName(m.storage))
		m.Expect(err).To(HaveOccurred(), "the account is deleted")
	}, exporting)
}

// The managers of most installations have no permission on Secrets.
func TestManagerSaysHowToGrantThePermissionOnSecrets(t *testing.T) {
	withManager(t, func(m *managed) {
		m.deniesSecrets.Store(true)
		wait(5 * time.Minute)
		m.Expect(meta.FindStatusCondition(m.now().Status.Conditions, v1beta1.ConditionAccountKeysReady)).To(And(
			HaveField("Reason", "Forbidden"), HaveField("Message", ContainSubstring("set rbac.accountKeys of the chart, or apply the component config/account-keys, or remove spec.export.accountKeys; see Permissions in docs/operations.md"))))
	}, exportingKeys)
}

// The finalizer of the Secret is written without a cache, and before the account is created.
func TestManagerProtectsTheSecret(t *testing.T) {
	withManager(t, func(m *managed) {
		m.Expect(m.ready()).To(HaveField("Reason", v1beta1.ReasonCredentialsMissing))
		m.Expect(m.recorder).To(Equal("securestorage"))
		secret := secretNamed("azure")
		secret.Data = map[string][]byte{"tenantID": []byte("t"), "clientID": []byte("c"), "clientSecret": []byte(fakecloud.Token("billing"))}
		m.Expect(m.Server.Create(t.Context(), secret)).To(Succeed())
		metadata := &metav1.PartialObjectMetadata{ObjectMeta: secret.ObjectMeta}
		metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		m.Send(metadata)
		wait(5 * time.Minute)
		m.Expect(m.ready()).To(HaveField("Status", metav1.ConditionTrue), "%v", m.now().Status.Conditions)
		m.Expect(m.direct).To(ContainElement("PATCH azure " + FieldManager))
		m.Expect(m.protectedLate).To(BeFalse())
		m.Expect(m.Server.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)).To(Succeed())
		m.Expect(secret.Finalizers).To(Equal([]string{SecretFinalizer}))
	}, withSecret("azure"))
}

// A plan applies as the manager does, so that it finds nothing to change in what the manager applied.
func TestPlanOfWhatTheManagerAppliedIsEmpty(t *testing.T) {
	withManager(t, func(m *managed) {
		wait(5 * time.Minute)
		engine, err := NewPlanner(setup.Planning{API: m.Server, Reader: m.GetClient(), Clock: clock.RealClock{}}, m.managerOptions())
		m.Expect(err).NotTo(HaveOccurred())
		plan, err := engine.Plan(context.Background(), m.now())
		m.Expect(err).NotTo(HaveOccurred())
		for _, phase := range plan.Phases {
			m.Expect(phase.Err).NotTo(HaveOccurred())
			m.Expect(phase.Changes).To(BeEmpty(), phase.Name)
		}
	}, exporting)
}

// An engine that only plans has no recorder.
func TestPlannerEmitsNoEvents(t *testing.T) {
	access := &cloudAccess{plans: true}
	NewWithT(t).Expect(func() {
		access.normalEvent(newScope().storage, v1beta1.ReasonRetained, "x")
		access.warningEvent(newScope().storage, v1beta1.ReasonAbandoned, "x")
	}).NotTo(Panic())
}

func TestManagerTellsWhatADeletionRetains(t *testing.T) {
	withManager(t, func(m *managed) {
		wait(5 * time.Minute)
		m.Expect(m.Server.Delete(t.Context(), m.now())).To(Succeed())
		m.Send(m.now())
		wait(5 * time.Minute)
		var all []string
		for len(m.events.Events) > 0 {
			all = append(all, <-m.events.Events)
		}
		m.Expect(all).To(ContainElement(ContainSubstring(v1beta1.ReasonRetained)))
		_, err := m.cloud.AccountKeys(accountName(m.storage))
		m.Expect(err).NotTo(HaveOccurred())
	}, func(s *v1beta1.SecureStorageSpec) { s.DeletionPolicy = v1beta1.DeletionRetain })
}

func TestManagerUsesTheCredentialThatTheSpecNames(t *testing.T) {
	identity := func(account string) func(*v1beta1.SecureStorageSpec) {
		return func(s *v1beta1.SecureStorageSpec) {
			s.Provider.WorkloadIdentity = &v1beta1.SecureStorageWorkloadIdentity{TenantID: "tenant", ClientID: "client", ServiceAccountName: account}
		}
	}
	for name, c := range map[string]struct {
		edit   func(*v1beta1.SecureStorageSpec)
		caller string
		reason string
	}{
		"that of the manager":                  {func(*v1beta1.SecureStorageSpec) {}, "fixpoint", v1beta1.ReasonReady},
		"of a ServiceAccount":                  {identity("storage"), "billing", v1beta1.ReasonReady},
		"of the ServiceAccount of the manager": {identity("manager"), "", v1beta1.ReasonCredentialsNotAllowed},
		"a Secret that does not exist": {func(s *v1beta1.SecureStorageSpec) {
			s.Provider.CredentialsSecretRef = &v1beta1.SecureStorageCredentialsSecretRef{Name: "azure"}
		}, "", v1beta1.ReasonCredentialsMissing},
		"that of the manager, in another scope": {func(s *v1beta1.SecureStorageSpec) {
			s.Provider.SubscriptionID = "00000000-0000-4000-8000-0000deadbeef"
		}, "", v1beta1.ReasonCredentialsNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			withManager(t, func(m *managed) {
				wait(5 * time.Minute)
				m.Expect(m.ready()).To(HaveField("Reason", c.reason), "%v", m.now().Status.Conditions)
				if c.caller == "" {
					m.Expect(m.cloud.Counts("")).To(BeEmpty())
				} else {
					m.Expect(m.cloud.Counts("")).To(And(HaveLen(1), HaveKey(c.caller)))
				}
			}, c.edit)
		})
	}
}

func TestManagerReconcilesWhatChanged(t *testing.T) {
	withManager(t, func(m *managed) {
		secret := func(name string) client.Object {
			metadata := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "billing", Name: name}}
			metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
			return metadata
		}
		m.Expect(m.after(func() { m.Send(secret("azure")) })).To(Equal(aReconcile))
		m.Expect(m.after(func() { m.Send(secret("other")) })).To(BeZero())

		before, after := m.now(), m.now()
		after.ResourceVersion, after.Status.Conditions = "other", nil
		m.Expect(m.after(func() { m.SendUpdate(before, after); wait(time.Minute / 4) })).To(BeZero(), "of the status, which nothing depends on")
		after.Generation++
		m.Expect(m.after(func() { m.SendUpdate(before, after) })).To(Equal(aReconcile))
	}, func(s *v1beta1.SecureStorageSpec) {
		s.Provider.CredentialsSecretRef = &v1beta1.SecureStorageCredentialsSecretRef{Name: "azure"}
	})
}

func TestPlannerAsksTheCloudAndWritesNothing(t *testing.T) {
	f := newFixture(t, fastCloud())
	server := ssatest.NewServer(testScheme(), ssatest.Options{})
	m := &managed{WithT: NewWithT(t), storage: f.storage, ambient: f.ambient, cloud: f.server}
	engine, err := NewPlanner(setup.Planning{API: server, Reader: userOf{server}, Clock: f.clock}, m.managerOptions())
	m.Expect(err).NotTo(HaveOccurred())
	m.Expect(engine.Index(server)).To(Succeed())

	plan, err := engine.Plan(t.Context(), m.storage)
	m.Expect(err).NotTo(HaveOccurred())
	for _, phase := range plan.Phases {
		m.Expect(phase.Err).NotTo(HaveOccurred(), "it needs no Secret")
	}
	m.Expect(plan.Phases[0].Changes).To(HaveLen(1), "%+v", plan)
	m.Expect(plan.Phases[0].Changes[0].Action).To(Equal(phases.ActionEnsure))
	m.Expect(f.server.Counts("")).To(HaveKey("fixpoint"))
	m.Expect(server.Writes()).To(BeEmpty())
	_, err = f.server.AccountKeys(accountName(m.storage))
	m.Expect(err).To(HaveOccurred(), "no account was created")

	m.storage.Spec.Provider.WorkloadIdentity = &v1beta1.SecureStorageWorkloadIdentity{TenantID: "tenant", ClientID: "client", ServiceAccountName: "manager"}
	plan, err = engine.Plan(t.Context(), m.storage)
	m.Expect(err).NotTo(HaveOccurred())
	m.Expect(plan.Phases[0].Verdict.Reason()).To(Equal(v1beta1.ReasonCredentialsNotAllowed), "%+v", plan)

	m.storage.Spec.Provider.WorkloadIdentity = nil
	m.storage.Spec.Provider.CredentialsSecretRef = &v1beta1.SecureStorageCredentialsSecretRef{Name: "azure"}
	plan, err = engine.Plan(t.Context(), m.storage)
	m.Expect(err).NotTo(HaveOccurred())
	m.Expect(plan.Phases[0].Err).To(MatchError(ContainSubstring("reading the credentials in Secret azure")))

	_, err = NewPlanner(setup.Planning{}, m.managerOptions())
	m.Expect(err).To(MatchError(ContainSubstring("Client is nil")))
}

// incomplete is a manager that has only what a test sets.
type incomplete struct {
	*managertest.Manager
	client  client.Client
	configs []*rest.Config
	indexer client.FieldIndexer
}

// GetClient implements [ctrl.Manager].
func (m *incomplete) GetClient() client.Client { return m.client }

// GetFieldIndexer implements [ctrl.Manager].
func (m *incomplete) GetFieldIndexer() client.FieldIndexer { return m.indexer }

// GetConfig implements [ctrl.Manager]: the first time with the first one, and at last with none.
func (m *incomplete) GetConfig() *rest.Config {
	if len(m.configs) == 0 {
		return nil
	}
	config := m.configs[0]
	m.configs = m.configs[1:]
	return config
}

type withoutIndexes struct{}

// IndexField implements [client.FieldIndexer].
func (withoutIndexes) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return errors.New("the cache has started")
}

func TestSetUpSaysWhatItLacks(t *testing.T) {
	g := NewWithT(t)
	manager := managertest.New(t, testScheme(), ssatest.Options{})
	config := &rest.Config{Host: "cluster.invalid"}
	options := (&managed{cloud: fakecloud.New(fakecloud.Options{Seed: fixtureSeed})}).managerOptions()
	g.Expect(Setup(&incomplete{Manager: manager}, options)).To(MatchError(ContainSubstring("building a client without a cache")))
	g.Expect(Setup(&incomplete{Manager: manager, configs: []*rest.Config{config}}, options)).To(MatchError(ContainSubstring("setting up the controller securestorage")))
	_, err := NewEngine(&incomplete{Manager: manager}, options)
	g.Expect(err).To(MatchError(ContainSubstring("setting up the controller securestorage")))
	whole := &incomplete{Manager: manager, configs: []*rest.Config{config}, client: withTokens{manager.GetClient()}, indexer: withoutIndexes{}}
	g.Expect(Setup(whole, options)).To(MatchError(ContainSubstring("the cache has started")))
	g.Expect(definition(nil, nil).Controller).To(Equal("securestorage"), "the name in metrics, Events and logs")
}
